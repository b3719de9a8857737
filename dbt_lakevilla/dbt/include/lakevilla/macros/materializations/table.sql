{#- A model is one transaction, and one commit: readers see the old rows, or the new ones. -#}
{% materialization table, adapter='lakevilla', supported_languages=['sql', 'python'] %}
  {%- set existing_relation = load_cached_relation(this) -%}
  {%- set target_relation = this.incorporate(type='table') -%}

  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}

  {% do lakevilla__make_room(existing_relation, 'table') %}
  {% call statement('main', language=model['language']) -%}
    {{ create_table_as(False, target_relation, model['compiled_code'], model['language']) }}
  {%- endcall %}

  {{ return(lakevilla__end_of_model(target_relation)) }}
{% endmaterialization %}
