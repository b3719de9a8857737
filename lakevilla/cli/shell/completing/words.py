"""The words of SQL that are offered."""

from __future__ import annotations

#: What a statement begins with.
FIRST_WORDS = (
    *("SELECT", "WITH", "FROM", "INSERT INTO", "UPDATE", "DELETE FROM", "MERGE INTO"),
    *("CREATE TABLE", "DROP TABLE", "ALTER TABLE", "TRUNCATE", "COMMENT ON"),
    *("BEGIN", "BEGIN ATOMIC", "COMMIT", "ROLLBACK", "END", "SET", "RESET"),
    *("SHOW TABLES", "SHOW VERSIONS", "SHOW TRANSACTIONS", "SHOW BRANCHES", "SHOW TAGS"),
    *("DESCRIBE", "EXPLAIN", "OPTIMIZE", "VACUUM"),
    *("CREATE BRANCH", "DROP BRANCH", "MERGE BRANCH", "CREATE TAG", "DROP TAG"),
)
#: What may follow inside one.
WORDS = (
    *("SELECT", "DISTINCT", "FROM", "WHERE", "GROUP BY", "HAVING", "QUALIFY", "ORDER BY"),
    *("LIMIT", "OFFSET", "ASC", "DESC", "NULLS FIRST", "NULLS LAST", "AS", "ON", "USING"),
    *("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN", "SEMI JOIN", "ANTI JOIN"),
    *("UNION", "UNION ALL", "EXCEPT", "INTERSECT", "VALUES", "SET", "INTO", "WITH", "RECURSIVE"),
    *("AND", "OR", "NOT", "IN", "IS", "IS NULL", "IS NOT NULL", "NULL", "LIKE", "ILIKE"),
    *("BETWEEN", "EXISTS", "CASE", "WHEN", "THEN", "ELSE", "END", "CAST", "TRUE", "FALSE"),
    *("OVER", "PARTITION BY", "FILTER", "INTERVAL", "DATE", "TIMESTAMP", "EXTRACT"),
    *("WHEN MATCHED THEN", "WHEN NOT MATCHED THEN", "WHEN NOT MATCHED BY SOURCE THEN"),
    *("UPDATE", "DELETE", "INSERT", "UPDATE SET", "INSERT INTO"),
    *("IF EXISTS", "IF NOT EXISTS", "PARTITIONED BY", "USING DELTA", "USING ICEBERG"),
    *("VERSION AS OF", "TIMESTAMP AS OF", "AT", "ATOMIC", "ISOLATION LEVEL", "READ ONLY"),
)
FUNCTIONS = (
    *("abs", "any_value", "arg_max", "arg_min", "avg", "ceil", "coalesce", "concat", "concat_ws"),
    *("contains", "count", "current_date", "date_diff", "date_part", "date_trunc", "dense_rank"),
    *("ends_with", "epoch", "first", "first_value", "floor", "greatest", "hash", "ifnull", "instr"),
    *("lag", "last", "last_value", "lead", "least", "left", "length", "list", "list_contains"),
    *("lower", "lpad", "ltrim", "max", "md5", "median", "min", "mode", "now", "nullif", "power"),
    *("quantile_cont", "rank", "regexp_extract", "regexp_matches", "regexp_replace", "replace"),
    *("right", "round", "row_number", "rpad", "rtrim", "split_part", "sqrt", "starts_with"),
    *("stddev", "strftime", "string_agg", "strptime", "substring", "sum", "trim", "try_cast"),
    *("unnest", "upper", "variance"),
)
#: Behind these stands a table.
BEFORE_TABLES = frozenset(
    {"FROM", "JOIN", "INTO", "UPDATE", "TABLE", "DESCRIBE", "OPTIMIZE", "VACUUM", "TRUNCATE"}
)
#: Behind these stands the name of a branch or tag.
BEFORE_REFS = frozenset({"BRANCH", "TAG"})
#: These begin a part of a statement, in which what is listed is of one kind.
CLAUSES = BEFORE_TABLES | {
    *("SELECT", "WHERE", "ON", "BY", "HAVING", "QUALIFY", "SET", "VALUES", "USING", "WHEN"),
    *("THEN", "ELSE", "CASE", "LIMIT", "OFFSET", "AND", "OR", "NOT", "IN", "BETWEEN", "LIKE"),
    *("DISTINCT", "RETURNING", "OF", "WITH", "AS", "EXCEPT", "EXCLUDE"),
}
#: DuckDB's, as ``duckdb_keywords()`` lists them: a name that is one of them is quoted.
RESERVED = frozenset(
    {
        *("all", "analyse", "analyze", "and", "any", "array", "as", "asc", "asymmetric", "both"),
        *("case", "cast", "check", "collate", "column", "constraint", "create", "default"),
        *("deferrable", "desc", "describe", "distinct", "do", "else", "end", "except", "false"),
        *("fetch", "for", "foreign", "from", "group", "having", "in", "initially", "intersect"),
        *("into", "lambda", "lateral", "leading", "limit", "not", "null", "offset", "on", "only"),
        *("or", "order", "pivot", "pivot_longer", "pivot_wider", "placing", "primary", "qualify"),
        *("references", "returning", "select", "show", "some", "summarize", "symmetric", "table"),
        *("then", "to", "trailing", "true", "union", "unique", "unpivot", "using", "variadic"),
        *("when", "where", "window", "with"),
    }
)
