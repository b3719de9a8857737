{% materialization incremental, adapter='lakevilla', supported_languages=['sql', 'python'] %}
  {%- set existing_relation = load_cached_relation(this) -%}
  {%- set target_relation = this.incorporate(type='table') -%}
  {%- set temp_relation = make_temp_relation(target_relation) -%}
  {%- set language = model['language'] -%}
  {%- set on_schema_change = incremental_validate_on_schema_change(config.get('on_schema_change'), default='ignore') -%}
  {%- set strategy = adapter.get_incremental_strategy_macro(context, config.get('incremental_strategy') or 'default') -%}

  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}

  {% if existing_relation is none or existing_relation.is_view or should_full_refresh() %}
    {% do lakevilla__make_room(existing_relation, 'table') %}
    {% call statement('main', language=language) -%}
      {{ create_table_as(False, target_relation, model['compiled_code'], language) }}
    {%- endcall %}
  {% else %}
    {#- The new rows are found once: what follows reads them, and {{ this }} no more. -#}
    {% call statement('new_rows', language=language) -%}
      {{ create_table_as(True, temp_relation, model['compiled_code'], language) }}
    {%- endcall %}
    {% set dest_columns = process_schema_changes(on_schema_change, temp_relation, existing_relation) %}
    {% if not dest_columns %}
      {% set dest_columns = adapter.get_columns_in_relation(existing_relation) %}
    {% endif %}
    {% set main_sql = strategy({
      'target_relation': target_relation,
      'temp_relation': temp_relation,
      'unique_key': config.get('unique_key'),
      'dest_columns': dest_columns,
      'incremental_predicates': config.get('predicates', none) or config.get('incremental_predicates', none)
    }) %}
    {% call statement('main') -%}
      {{ main_sql }}
    {%- endcall %}
  {% endif %}

  {{ return(lakevilla__end_of_model(target_relation)) }}
{% endmaterialization %}
