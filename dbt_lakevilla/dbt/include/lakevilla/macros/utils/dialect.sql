{#- Where DuckDB's dialect differs from what dbt writes by default. -#}

{% macro lakevilla__date(year, month, day) -%}
  make_date({{ year }}, {{ month }}, {{ day }})
{%- endmacro %}

{% macro lakevilla__dateadd(datepart, interval, from_date_or_timestamp) -%}
  {%- set part = datepart | lower -%}
  {%- set unit, times = ('month', 3) if part == 'quarter' else ('day', 7) if part == 'week' else (part, 1) -%}
  (({{ from_date_or_timestamp }})::timestamp + cast({{ interval }} as bigint) * {{ times }} * interval 1 {{ unit }})
{%- endmacro %}

{#- Weeks begin on Sunday, as in dbt's other adapters. -#}
{% macro lakevilla__datediff(first_date, second_date, datepart) -%}
  {%- set first, second = '(' ~ first_date ~ ')::timestamp', '(' ~ second_date ~ ')::timestamp' -%}
  {%- if datepart | lower == 'week' -%}
    ({{ datediff(first_date, second_date, 'day') }} // 7 + case
      when date_part('dow', {{ first }}) <= date_part('dow', {{ second }})
      then case when {{ first }} <= {{ second }} then 0 else -1 end
      else case when {{ first }} <= {{ second }} then 1 else 0 end
    end)
  {%- else -%}
    date_diff('{{ datepart }}', {{ first }}, {{ second }})
  {%- endif -%}
{%- endmacro %}

{% macro lakevilla__generate_series(upper_bound) %}
  select generate_series as generated_number from generate_series(1, {{ upper_bound }})
{% endmacro %}

{% macro lakevilla__last_day(date, datepart) -%}
  cast({{ dbt.dateadd('day', '-1', dbt.dateadd(datepart, '1', dbt.date_trunc(datepart, date))) }} as date)
{%- endmacro %}

{% macro lakevilla__listagg(measure, delimiter_text, order_by_clause, limit_num) -%}
  {%- set order = order_by_clause or '' -%}
  {%- if limit_num -%}
    list_aggr((array_agg({{ measure }} {{ order }}))[1:{{ limit_num }}], 'string_agg', {{ delimiter_text }})
  {%- else -%}
    string_agg({{ measure }}, {{ delimiter_text }} {{ order }})
  {%- endif -%}
{%- endmacro %}

{#- Of 64 bits, as the numbers of seeds; DuckDB's float has 32. -#}
{% macro lakevilla__type_float() -%}
  double
{%- endmacro %}

{% macro lakevilla__split_part(string_text, delimiter_text, part_number) -%}
  string_split({{ string_text }}, {{ delimiter_text }})[{{ part_number }}]
{%- endmacro %}
