{#- One statement where it can be: CREATE OR REPLACE keeps the table's history and its name. -#}
{% macro lakevilla__create_table_as(temporary, relation, compiled_code, language='sql') -%}
  {%- if language == 'python' -%}
{{ compiled_code }}

TARGET = {{ (relation | string) | tojson }}
IS_TEMPORARY = {{ 'True' if temporary else 'False' }}
  {%- elif temporary -%}
    create temporary table {{ relation }} as
    {{ compiled_code }}
  {%- else -%}
    {%- set sql_header = config.get('sql_header', none) -%}
    {{ sql_header if sql_header is not none }}
    {%- set contract = config.get('contract') %}
    {%- if contract and contract.enforced %}
    {{ get_assert_columns_equivalent(compiled_code) }}
    create or replace table {{ relation }}
    {{ get_table_columns_and_constraints() }}
    {{ lakevilla__table_clauses() }};
    insert into {{ relation }} by name
    {{ get_select_subquery(compiled_code) }}
    {%- else %}
    create or replace table {{ relation }}
    {{ lakevilla__table_clauses() }}
    as
    {{ lakevilla__with_text_for_null(compiled_code) }}
    {%- endif %}
  {%- endif -%}
{%- endmacro %}

{% macro lakevilla__table_clauses() -%}
  {%- set file_format = config.get('file_format', none) -%}
  {%- set partition_by = lakevilla__partition_columns() -%}
  {%- set properties = config.get('table_properties', none) -%}
  {%- if file_format %} using {{ file_format }}{% endif -%}
  {%- if partition_by %} partitioned by ({{ partition_by | join(', ') }}){% endif -%}
  {%- if properties %} tblproperties (
    {%- for key, value in properties.items() -%}
      '{{ key | replace("'", "''") }}' = '{{ value | string | replace("'", "''") }}'{{ ', ' if not loop.last }}
    {%- endfor -%}
  ){% endif -%}
{%- endmacro %}

{% macro lakevilla__partition_columns() -%}
  {%- set given = config.get('partition_by', none) or [] -%}
  {{ return([given] if given is string else given | list) }}
{%- endmacro %}

{% macro lakevilla__create_view_as(relation, sql) -%}
  {%- set contract = config.get('contract') -%}
  {%- if contract and contract.enforced %}
    {{ get_assert_columns_equivalent(sql) }}
  {%- endif %}
  {%- set sql_header = config.get('sql_header', none) -%}
  {{ sql_header if sql_header is not none }}
  create or replace view {{ relation }}
  {%- if config.persist_relation_docs() and model.description %}
    comment '{{ model.description | replace("'", "''") }}'
  {%- endif %}
  as
    {{ sql if contract and contract.enforced else lakevilla__with_text_for_null(sql) }}
{%- endmacro %}

{#- A header may make what its query reads, so a query that has one is not described before it. -#}
{% macro lakevilla__with_text_for_null(sql) -%}
  {{ return(sql if config.get('sql_header', none) else adapter.with_text_for_null(sql)) }}
{%- endmacro %}

{#- A table in the place of a view, or a view in that of a table: in the model's transaction. -#}
{% macro lakevilla__make_room(existing_relation, kind) %}
  {% if existing_relation is not none and existing_relation.type != kind %}
    {% call statement('make_room') -%}
      drop {{ existing_relation.type }} if exists {{ existing_relation }}
    {%- endcall %}
  {% endif %}
{% endmacro %}

{#- The one commit of a model, with what belongs to it; returns what a materialization does. -#}
{% macro lakevilla__end_of_model(target_relation) %}
  {% do apply_grants(target_relation, config.get('grants')) %}
  {% do persist_docs(target_relation, model) %}

  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {% do adapter.commit() %}
  {{ run_hooks(post_hooks, inside_transaction=False) }}

  {{ return({'relations': [target_relation]}) }}
{% endmacro %}

{#- A view keeps its comment from its definition, and has none for columns. -#}
{% macro lakevilla__persist_docs(relation, model, for_relation, for_columns) -%}
  {% if relation.type != 'view' %}
    {{ default__persist_docs(relation, model, for_relation, for_columns) }}
  {% endif %}
{%- endmacro %}

{% macro lakevilla__alter_relation_comment(relation, relation_comment) -%}
  comment on table {{ relation.render() }} is '{{ relation_comment | replace("'", "''") }}'
{%- endmacro %}

{% macro lakevilla__alter_column_comment(relation, column_dict) -%}
  {% for name, column in column_dict.items() if column.description -%}
    comment on column {{ relation.render() }}.{{ adapter.quote(name) }} is '{{ column.description | replace("'", "''") }}';
  {% endfor %}
{%- endmacro %}
