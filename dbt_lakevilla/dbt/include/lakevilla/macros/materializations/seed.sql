{% macro lakevilla__create_csv_table(model, agate_table) %}
  {%- set types = lakevilla__seed_types(model, agate_table) -%}
  {% set sql %}
    create or replace table {{ this.render() }} (
      {%- for name in agate_table.column_names -%}
        {{ adapter.quote(name) }} {{ types[loop.index0] }}{{ ', ' if not loop.last }}
      {%- endfor -%}
    ) {{ lakevilla__table_clauses() }}
  {% endset %}
  {% call statement('create_seed') -%}{{ sql }}{%- endcall %}
  {{ return(sql) }}
{% endmacro %}

{% macro lakevilla__reset_csv_table(model, full_refresh, old_relation, agate_table) %}
  {% if full_refresh %}
    {{ return(create_csv_table(model, agate_table)) }}
  {% endif %}
  {% do adapter.truncate_relation(old_relation) %}
  {{ return('truncate table ' ~ old_relation.render()) }}
{% endmacro %}

{#- All rows by one statement, and so in one file. -#}
{% macro lakevilla__load_csv_rows(model, agate_table) %}
  {{ return(adapter.load_seed(this, agate_table, agate_table.column_names, lakevilla__seed_types(model, agate_table))) }}
{% endmacro %}

{% macro lakevilla__seed_types(model, agate_table) %}
  {%- set given = model['config'].get('column_types', {}) -%}
  {%- set types = [] -%}
  {%- for name in agate_table.column_names -%}
    {%- do types.append(adapter.stored_type(given.get(name, adapter.convert_type(agate_table, loop.index0)))) -%}
  {%- endfor -%}
  {{ return(types) }}
{% endmacro %}
