{% macro lakevilla__snapshot_merge_sql(target, source, insert_cols) -%}
  {%- set columns = config.get('snapshot_table_column_names') or get_snapshot_table_column_names() -%}
  {%- set until = 'DBT_INTERNAL_DEST.' ~ columns.dbt_valid_to -%}
  {%- set current = config.get('dbt_valid_to_current') -%}
  {#- A snapshot whose updates are of days has days, and the staged rows have times. -#}
  {%- set values = {} -%}
  {%- set times = [columns.dbt_valid_to, columns.dbt_valid_from, columns.dbt_updated_at] | map('lower') | list -%}
  {%- for column in adapter.get_columns_in_relation(target) if column.name | lower in times and column.dtype == 'DATE' -%}
    {%- do values.update({column.name | lower: 'cast(DBT_INTERNAL_SOURCE.' ~ column.quoted ~ ' as date)'}) -%}
  {%- endfor -%}
  merge into {{ target.render() }} as DBT_INTERNAL_DEST
  using {{ source }} as DBT_INTERNAL_SOURCE
  on DBT_INTERNAL_SOURCE.{{ columns.dbt_scd_id }} = DBT_INTERNAL_DEST.{{ columns.dbt_scd_id }}
  when matched
    and ({{ until }} is null{% if current %} or {{ until }} = {{ current | trim }}{% endif %})
    and DBT_INTERNAL_SOURCE.dbt_change_type in ('update', 'delete')
    then update set {{ columns.dbt_valid_to }} = {{ values.get(columns.dbt_valid_to | lower, 'DBT_INTERNAL_SOURCE.' ~ columns.dbt_valid_to) }}
  when not matched and DBT_INTERNAL_SOURCE.dbt_change_type = 'insert'
    then insert ({{ insert_cols | join(', ') }})
    values ({% for name in insert_cols %}{{ values.get(name | lower | replace('"', ''), 'DBT_INTERNAL_SOURCE.' ~ name) }}{{ ', ' if not loop.last }}{% endfor %})
{%- endmacro %}
