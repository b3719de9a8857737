{% macro lakevilla__create_schema(relation) -%}
  {%- call statement('create_schema') -%}
    create schema if not exists {{ relation.without_identifier() }}
  {%- endcall -%}
{% endmacro %}

{% macro lakevilla__drop_schema(relation) -%}
  {%- call statement('drop_schema') -%}
    drop schema if exists {{ relation.without_identifier() }} cascade
  {%- endcall -%}
{% endmacro %}

{% macro lakevilla__list_schemas(database) -%}
  {{ return(run_query('select schema_name from information_schema.schemata')) }}
{% endmacro %}

{% macro lakevilla__check_schema_exists(information_schema, schema) -%}
  {% set sql -%}
    select count(*) from information_schema.schemata where schema_name = '{{ schema }}'
  {%- endset %}
  {{ return(run_query(sql)) }}
{% endmacro %}

{% macro lakevilla__list_relations_without_caching(schema_relation) %}
  {% call statement('list_relations_without_caching', fetch_result=True, auto_begin=False) -%}
    select
      table_catalog as database,
      table_name as name,
      table_schema as schema,
      case table_type when 'VIEW' then 'view' else 'table' end as type
    from information_schema.tables
    where lower(table_schema) = lower('{{ schema_relation.schema }}')
  {% endcall %}
  {{ return(load_result('list_relations_without_caching').table) }}
{% endmacro %}

{% macro lakevilla__get_columns_in_relation(relation) -%}
  {{ return(adapter.get_columns_in_relation(relation)) }}
{%- endmacro %}

{% macro lakevilla__drop_relation(relation) -%}
  {% call statement('drop_relation', auto_begin=False) -%}
    drop {{ relation.type }} if exists {{ relation.render() }}
  {%- endcall %}
{% endmacro %}

{% macro lakevilla__rename_relation(from_relation, to_relation) -%}
  {% call statement('rename_relation', auto_begin=False) -%}
    alter {{ from_relation.type or 'table' }} {{ from_relation.render() }} rename to {{ to_relation.render() }}
  {%- endcall %}
{% endmacro %}

{% macro lakevilla__truncate_relation(relation) -%}
  {% call statement('truncate_relation') -%}
    truncate table {{ relation.render() }}
  {%- endcall %}
{% endmacro %}

{#- A temporary table has no schema: it belongs to the session. -#}
{% macro lakevilla__make_temp_relation(base_relation, suffix) %}
  {% do return(base_relation.incorporate(path={
    'identifier': base_relation.identifier ~ suffix, 'schema': none, 'database': none
  })) %}
{% endmacro %}

{% macro lakevilla__get_empty_subquery_sql(select_sql, select_sql_header=none) %}
  {{ select_sql_header if select_sql_header is not none }}
  select * from (
    {{ select_sql }}
  ) as __dbt_sbq
  limit 0
{% endmacro %}

{% macro lakevilla__current_timestamp() -%}
  now()
{%- endmacro %}

{% macro lakevilla__current_timestamp_in_utc_backcompat() -%}
  (current_timestamp at time zone 'utc')::timestamp
{%- endmacro %}

{% macro lakevilla__snapshot_string_as_time(timestamp) -%}
  {{ return("'" ~ timestamp ~ "'::timestamp") }}
{%- endmacro %}

{% macro lakevilla__snapshot_get_time() -%}
  now()::timestamp
{%- endmacro %}

{% macro lakevilla__alter_column_type(relation, column_name, new_column_type) -%}
  {% call statement('alter_column_type') -%}
    alter table {{ relation.render() }} alter column {{ adapter.quote(column_name) }} type {{ new_column_type }}
  {%- endcall %}
{% endmacro %}

{#- A Delta table drops columns by their names in the log, so it needs column mapping. -#}
{% macro lakevilla__alter_relation_add_remove_columns(relation, add_columns, remove_columns) %}
  {% for column in add_columns or [] %}
    {% call statement('add_column') -%}
      alter table {{ relation.render() }} add column {{ adapter.quote(column.name) }} {{ column.data_type }}
    {%- endcall %}
  {% endfor %}
  {% if remove_columns %}
    {% if config.get('file_format', 'delta') == 'delta' %}
      {% call statement('name_columns') -%}
        alter table {{ relation.render() }} set tblproperties ('delta.columnMapping.mode' = 'name')
      {%- endcall %}
    {% endif %}
    {% for column in remove_columns %}
      {% call statement('drop_column') -%}
        alter table {{ relation.render() }} drop column {{ adapter.quote(column.name) }}
      {%- endcall %}
    {% endfor %}
  {% endif %}
{% endmacro %}

{#- dbt's own macro commits before hooks, for databases whose connections begin in a transaction. -#}
{% macro run_hooks(hooks, inside_transaction=True) %}
  {% for hook in hooks | selectattr('transaction', 'equalto', inside_transaction) %}
    {% set rendered = render(hook.get('sql')) | trim %}
    {% if (rendered | length) > 0 %}
      {% call statement(auto_begin=inside_transaction) %}
        {{ rendered }}
      {% endcall %}
    {% endif %}
  {% endfor %}
{% endmacro %}

{% macro lakevilla__apply_grants(relation, grant_config, should_revoke=True) %}
  {% if grant_config %}
    {{ exceptions.raise_compiler_error(
      "a lake has no grants, since it has no server: leave grants out of the configuration of "
      ~ relation ~ ", and let the object store say who may read its prefix"
    ) }}
  {% endif %}
{% endmacro %}
