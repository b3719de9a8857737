"""The features of SQLAlchemy's suite that a lake has, and the reasons for those that it lacks."""

from __future__ import annotations

from typing import Any

from sqlalchemy.testing import exclusions
from sqlalchemy.testing.requirements import SuiteRequirements

#: Features that the suite requires by default, and that a lake lacks.
WITHOUT = {
    "autoincrement_insert": "a lake has no autoincrement",
    "autoincrement_without_sequence": "a lake has no autoincrement",
    "foreign_key_constraint_reflection": "nothing checks other tables",
    "self_referential_foreign_keys": "nothing checks other tables",
    "on_update_cascade": "nothing checks other tables",
    "recursive_fk_cascade": "nothing checks other tables",
    "named_constraints": "CHECK alone is kept",
    "implicitly_named_constraints": "CHECK alone is kept",
    "primary_key_constraint_reflection": "keys are not kept",
    "unique_constraint_reflection": "keys are not kept",
    "duplicate_key_raises_integrity_error": "keys are not checked",
    "index_reflection": "files are found by their statistics",
    "indexes_with_ascdesc": "files are found by their statistics",
    "reflect_indexes_with_ascdesc": "files are found by their statistics",
    "temp_table_reflection": "a lake has no temporary tables",
    "temporary_tables": "a lake has no temporary tables",
    "implements_get_lastrowid": "rows have no ids",
    "time": "Delta has no type for a time of the day",
    "time_microseconds": "Delta has no type for a time of the day",
    "time_implicit_bound": "Delta has no type for a time of the day",
    "date_coerces_from_datetime": "a timestamp is no day, and is cast by nobody but the user",
    "binary_literals": "bytes go in as parameters",
}
#: Features that the suite leaves out by default, and that a lake has.
WITH = {
    "create_table_as",
    "table_ddl_if_exists",
    "table_value_constructor",
    "boolean_col_expressions",
    "nullsordering",
    "intersect",
    "except_",
    "window_functions",
    "ctes",
    "ctes_with_values",
    "tuple_in",
    "datetime_timezone",
    "datetime_historic",
    "datetime_timezone_historic",
    "date_historic",
    "timestamp_microseconds",
    "unicode_ddl",
    "autocommit",
    "isolation_level",
    "precision_numerics_enotation_small",
    "infinity_floats",
    "order_by_label_with_expression",
    "mod_operator_as_percent_sign",
    "regexp_match",
    "regexp_replace",
    "fetch_first",
    "fetch_no_order_by",
    "implicit_default_schema",
    "aggregate_order_by",
    "array_type",
    "supports_bitwise_or",
    "supports_bitwise_and",
    "supports_bitwise_not",
    "supports_bitwise_shift",
    "supports_bitwise_xor",
    "schemas",
    "savepoints",
    "views",
    "view_reflection",
    "view_column_reflection",
    "schema_create_delete",
    "check_constraint_reflection",
    "comment_reflection",
    "comment_reflection_full_unicode",
    "skip_autocommit_rollback",
}


#: Tests that fail on a lake, and that no requirement of the suite leaves out.
LEFT_OUT = {
    "test_no_results_for_non_returning_insert": "it leaves out the key, and nothing counts up",
    "test_insert_from_select_autoinc": "a lake has no autoincrement",
    "test_insert_from_select_autoinc_no_rows": "a lake has no autoincrement",
    "test_truediv_divisor[numeric_38_digit_divisor-typed]": "DuckDB divides decimals as doubles",
    "test_truediv_divisor[numeric_38_digit_divisor-untyped_function]": "as before",
    "test_string_length_reflection": "text has any length",
    "test_long_convention_name": "it makes an index, and looks for its name",
}


def _closed(self: SuiteRequirements) -> Any:
    return exclusions.closed()


def _open(self: SuiteRequirements) -> Any:
    return exclusions.open()


class _Of(SuiteRequirements):
    """Set the requirements of the two lists."""


for _name in WITHOUT:
    setattr(_Of, _name, property(_closed))
for _name in WITH:
    setattr(_Of, _name, property(_open))


class Requirements(_Of):
    """Add the requirements that need more than an entry in the two lists."""

    def get_isolation_levels(self, config: Any) -> dict[str, Any]:
        return {
            "default": "SERIALIZABLE",
            "supported": ["SERIALIZABLE", "SNAPSHOT", "WRITE SERIALIZABLE", "AUTOCOMMIT"],
        }
