"""Write Iceberg tables by pyiceberg: its schema and partition changes, promotions and metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import parse_transform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from lakevilla.formats.iceberg.catalog.object_store_catalog import ObjectStoreCatalog
from tests.property.plans import (
    Add,
    Append,
    Col,
    Delete,
    Drop,
    Model,
    Plan,
    Rename,
    Respec,
    Step,
    Widen,
    table_of,
)
from tests.property.position_deletes import delete_positions
from tests.property.values import decimal_parts

_TYPES: dict[str, IcebergType] = {
    "integer": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "binary": BinaryType(),
    "boolean": BooleanType(),
    "date": DateType(),
    "timestamp": TimestamptzType(),
    "timestamp_ntz": TimestampType(),
}
_METRICS = ("full", "truncate(16)", "truncate(16)", "counts", "none")


@dataclass
class IcebergWriter:
    """A table; ``model`` has its rows before each step."""

    root: str
    name: str
    plan: Plan
    model: Model

    def create(self) -> None:
        rng = Random(len(self.plan.steps))
        schema = Schema(*(_field(col) for col in self.plan.cols))
        names = {col.id: col.name for col in self.plan.cols}
        fields = [
            PartitionField(id_, 1000 + at, parse_transform(how), f"part_{at}_{names[id_]}")
            for at, (id_, how) in enumerate(self.plan.partition)
        ]
        properties = {
            "format-version": self.plan.version,
            "write.metadata.metrics.default": rng.choice(_METRICS),
            "write.parquet.row-group-limit": rng.choice(["1", "2", "1000"]),
        }
        self._catalog().create_table(
            (self.name,), schema, partition_spec=PartitionSpec(*fields), properties=properties
        )

    def _catalog(self) -> ObjectStoreCatalog:
        return ObjectStoreCatalog("tests", warehouse=self.root)

    def table(self) -> Table:
        return self._catalog().load_table((self.name,))

    def apply(self, step: Step, after: Model) -> None:
        table = self.table()
        match step:
            case Append(rows=rows):
                table.append(table_of(self.model.cols, rows))
            case Delete(keys=keys) if self.plan.version == "2" and sum(keys) % 3:
                delete_positions(table, keys, Random(sum(keys)))
            case Delete(keys=keys):
                table.delete(f"id in ({', '.join(map(str, keys))})")
            case Widen(id=id_, type=to):
                with table.update_schema() as update:
                    update.update_column(self._path(id_), _type(Col(0, "", to)))
            case Rename(id=id_, name=name):
                with table.update_schema() as update:
                    update.rename_column(self._path(id_), name)
            case Add(col=col):
                with table.update_schema() as update:
                    update.add_column((col.name,), _type(col))
            case Drop(id=id_):
                with table.update_schema() as update:
                    update.delete_column(self._path(id_))
            case Respec(partition=partition):
                number = len(table.metadata.partition_specs)
                with table.update_spec() as spec:
                    for field in table.spec().fields:
                        spec.remove_field(field.name)
                    for at, (id_, how) in enumerate(partition):
                        name = ".".join(self._path(id_))
                        spec.add_field(name, parse_transform(how), f"part_{number}_{at}")

    def may_delete(self, keys: Sequence[int]) -> bool:
        return True

    def forget(self, keys: Sequence[int]) -> None:
        """Do nothing: this writer keeps no list of its files."""

    def _path(self, id_: int) -> tuple[str, ...]:
        def look(cols: Any, path: tuple[str, ...]) -> tuple[str, ...] | None:
            for col in cols:
                own = (*path, col.name)
                if col.id == id_:
                    return own
                if col.type == "struct" and (found := look(col.fields, own)):
                    return found
            return None

        found = look(self.model.cols, ())
        assert found is not None
        return found


def _field(col: Col) -> NestedField:
    return NestedField(col.id, col.name, _type(col), required=False)


def _type(col: Col) -> IcebergType:
    if col.type == "struct":
        return StructType(*(_field(part) for part in col.fields))
    if col.type == "array":
        return ListType(col.fields[0].id, _type(col.fields[0]), element_required=False)
    if col.type == "map":
        key, value = col.fields
        return MapType(key.id, _type(key), value.id, _type(value), value_required=False)
    if col.type.startswith("decimal"):
        return DecimalType(*decimal_parts(col.type))
    return _TYPES[col.type]
