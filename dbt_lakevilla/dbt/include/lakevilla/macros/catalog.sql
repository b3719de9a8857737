{% macro lakevilla__get_catalog(information_schema, schemas) -%}
  {%- set wanted = [] -%}
  {%- for schema in schemas -%}
    {%- do wanted.append("lower(t.table_schema) = lower('" ~ schema ~ "')") -%}
  {%- endfor -%}
  {{ return(lakevilla__catalog_where(wanted)) }}
{%- endmacro %}

{% macro lakevilla__get_catalog_relations(information_schema, relations) -%}
  {%- set wanted = [] -%}
  {%- for relation in relations -%}
    {%- set schema = "lower(t.table_schema) = lower('" ~ relation.schema ~ "')" -%}
    {%- if relation.identifier -%}
      {%- do wanted.append("(" ~ schema ~ " and lower(t.table_name) = lower('" ~ relation.identifier ~ "'))") -%}
    {%- else -%}
      {%- do wanted.append(schema) -%}
    {%- endif -%}
  {%- endfor -%}
  {{ return(lakevilla__catalog_where(wanted)) }}
{%- endmacro %}

{% macro lakevilla__catalog_where(wanted) -%}
  {% set query %}
    select
      t.table_catalog as table_database,
      t.table_schema as table_schema,
      t.table_name as table_name,
      t.table_type as table_type,
      cast(null as varchar) as table_comment,
      c.column_name as column_name,
      c.ordinal_position as column_index,
      c.data_type as column_type,
      cast(null as varchar) as column_comment,
      cast(null as varchar) as table_owner
    from information_schema.tables as t
    join information_schema.columns as c
      on c.table_schema = t.table_schema and c.table_name = t.table_name
    where {{ wanted | join(' or ') if wanted else 'false' }}
    order by 2, 3, 7
  {% endset %}
  {{ return(adapter.with_comments(run_query(query))) }}
{%- endmacro %}
