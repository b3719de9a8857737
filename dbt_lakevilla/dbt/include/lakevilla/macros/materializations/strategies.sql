{% macro lakevilla__get_incremental_default_sql(arg_dict) %}
  {% if arg_dict['unique_key'] %}
    {% do return(get_incremental_merge_sql(arg_dict)) %}
  {% else %}
    {% do return(get_incremental_append_sql(arg_dict)) %}
  {% endif %}
{% endmacro %}

{% macro lakevilla__keys(unique_key) %}
  {{ return([unique_key] if unique_key is string else unique_key | list) }}
{% endmacro %}

{% macro lakevilla__get_merge_sql(target, source, unique_key, dest_columns, incremental_predicates=none) -%}
  {%- if not unique_key -%}
    {{ get_insert_into_sql(target, source, dest_columns) }}
  {%- else -%}
    {%- set conditions = [] -%}
    {%- for key in lakevilla__keys(unique_key) -%}
      {%- do conditions.append('DBT_INTERNAL_SOURCE.' ~ key ~ ' = DBT_INTERNAL_DEST.' ~ key) -%}
    {%- endfor -%}
    {%- do conditions.extend(incremental_predicates or []) -%}
    {%- set names = dest_columns | map(attribute='quoted') | list -%}
    {%- set updated = get_merge_update_columns(config.get('merge_update_columns'), config.get('merge_exclude_columns'), dest_columns) -%}
    merge into {{ target }} as DBT_INTERNAL_DEST
    using {{ source }} as DBT_INTERNAL_SOURCE
    on ({{ conditions | join(') and (') }})
    {% if updated -%}
    when matched then update set
      {% for name in updated -%}
        {{ name }} = DBT_INTERNAL_SOURCE.{{ name }}{{ ', ' if not loop.last }}
      {%- endfor %}
    {%- endif %}
    when not matched then insert ({{ names | join(', ') }})
    values ({% for name in names %}DBT_INTERNAL_SOURCE.{{ name }}{{ ', ' if not loop.last }}{% endfor %})
  {%- endif -%}
{%- endmacro %}

{#- The partitions that have new rows are replaced; without partition_by, all rows are. -#}
{% macro lakevilla__get_incremental_insert_overwrite_sql(arg_dict) -%}
  {%- set partition_by = lakevilla__partition_columns() -%}
  {%- set names = [] -%}
  {%- set partitions = partition_by | map('lower') | list -%}
  {%- for column in arg_dict['dest_columns'] if column.name | lower not in partitions -%}
    {%- do names.append(column.quoted) -%}
  {%- endfor -%}
  {%- for name in partition_by -%}{%- do names.append(adapter.quote(name)) -%}{%- endfor -%}
  insert overwrite {{ arg_dict['target_relation'] }}
  {%- if partition_by %} partition ({{ partition_by | join(', ') }}){% endif %}
  select {{ names | join(', ') }} from {{ arg_dict['temp_relation'] }}
{%- endmacro %}

{#- One batch of a microbatch model: the rows of its time go, and the new ones come. -#}
{% macro lakevilla__get_incremental_microbatch_sql(arg_dict) -%}
  {%- set target = arg_dict['target_relation'] -%}
  {%- set conditions = [] + (arg_dict['incremental_predicates'] or []) -%}
  {%- set event_time = config.get('event_time') -%}
  {%- if model.batch and model.batch.event_time_start -%}
    {%- do conditions.append(event_time ~ " >= timestamp '" ~ model.batch.event_time_start.strftime('%Y-%m-%d %H:%M:%S') ~ "'") -%}
  {%- endif -%}
  {%- if model.batch and model.batch.event_time_end -%}
    {%- do conditions.append(event_time ~ " < timestamp '" ~ model.batch.event_time_end.strftime('%Y-%m-%d %H:%M:%S') ~ "'") -%}
  {%- endif -%}
  delete from {{ target }} where {{ conditions | join(' and ') }};
  {{ get_insert_into_sql(target, arg_dict['temp_relation'], arg_dict['dest_columns']) }}
{%- endmacro %}
