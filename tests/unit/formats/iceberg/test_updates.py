"""Updates of REST clients: drawn at random beside pyiceberg's, and those that pyiceberg can't say.

pyiceberg is no oracle for: an equal schema, spec or order that is added again (it adds it twice, or
refuses it, and the specification reuses it), removed snapshots (it rewrites the parents of those
that stay, and Java does not), an upgrade to version 3 (it refuses it), a second main within one
request (Java leaves the first one out of the history), names that are removed and not there (it
raises), and row ids above the next one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from pydantic import TypeAdapter
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.update import TableUpdate, update_table_metadata

from lakevilla.errors import ConflictError, InvalidOperation, LakeVillaError
from lakevilla.formats.iceberg.metadata import updates as module
from lakevilla.formats.iceberg.metadata.requirements import KNOWN_REQUIREMENTS, check_requirements
from lakevilla.formats.iceberg.metadata.updates import KNOWN_UPDATES, updated
from tests.support.search import first_seed, how_many

SEEDS = how_many(60, whole=600, soak=20_000)
NOW = 1_700_000_000_000
UUID = "6f2c2c1e-8f25-4a3e-9d3b-0e7a3c2d1b4a"

Parts = dict[str, Any]
Update = dict[str, Any]

_updates: TypeAdapter[Any] = TypeAdapter(TableUpdate)


def field(number: int, name: str, kind: Any = "long") -> Parts:
    return {"id": number, "name": name, "required": False, "type": kind}


def schema(number: int, *fields: Parts) -> Parts:
    return {"type": "struct", "schema-id": number, "fields": list(fields)}


def made(version: int = 2) -> Parts:
    """Return a table's first file."""
    return updated(
        None,
        [
            {"action": "assign-uuid", "uuid": UUID},
            {"action": "upgrade-format-version", "format-version": version},
            {"action": "add-schema", "schema": schema(0, field(1, "a"), field(2, "b", "string"))},
            {"action": "set-current-schema", "schema-id": -1},
            {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
            {"action": "set-default-spec", "spec-id": -1},
            {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
            {"action": "set-default-sort-order", "sort-order-id": -1},
            {"action": "set-location", "location": "s3://lake/t/"},
            {"action": "set-properties", "updates": {"owner": "me"}},
        ],
        NOW,
        "t",
    )


def snapshot(number: int, parts: Parts, **more: Any) -> Update:
    """Return the update with which a client adds a snapshot on top of the current one."""
    one = {
        "snapshot-id": number,
        "sequence-number": parts["last-sequence-number"] + 1,
        "timestamp-ms": NOW + number,
        "manifest-list": f"s3://lake/t/metadata/snap-{number}.avro",
        "summary": {"operation": "append"},
        "schema-id": parts["current-schema-id"],
    }
    if parts["current-snapshot-id"] != -1:
        one["parent-snapshot-id"] = parts["current-snapshot-id"]
    if parts["format-version"] >= 3:
        one |= {"first-row-id": parts["next-row-id"], "added-rows": 5}
    return {"action": "add-snapshot", "snapshot": {**one, **more}}


def main_at(number: int) -> Update:
    return {
        "action": "set-snapshot-ref",
        "ref-name": "main",
        "type": "branch",
        "snapshot-id": number,
    }


# -- drawn updates -------------------------------------------------------------------


class Drawn:
    """Updates that are valid on a file, one after the other."""

    def __init__(self, random: Random, parts: Parts) -> None:
        self.random = random
        self.parts = parts
        self.updates: list[Update] = []
        self.has_moved_main = False

    def add(self, *updates: Update) -> None:
        self.updates += updates
        self.parts = updated(self.parts, updates, NOW, "t")

    def next_number(self, name: str, key: str) -> int:
        return 1 + max(one[key] for one in self.parts[name])

    def some_column(self) -> int:
        current = self.parts["current-schema-id"]
        fields = next(s for s in self.parts["schemas"] if s["schema-id"] == current)["fields"]
        return int(self.random.choice([one["id"] for one in fields if one["type"] == "long"]))

    def properties(self) -> None:
        name = f"p{self.random.randrange(3)}"
        if name in self.parts["properties"] and self.random.random() < 0.5:
            self.add({"action": "remove-properties", "removals": [name]})
        else:
            value = str(self.random.randrange(9))
            self.add({"action": "set-properties", "updates": {name: value}})

    def schema(self) -> None:
        number = self.next_number("schemas", "schema-id")
        column = self.parts["last-column-id"] + 1
        current = self.parts["current-schema-id"]
        fields = next(s for s in self.parts["schemas"] if s["schema-id"] == current)["fields"]
        kind: Any = "long"
        if self.random.random() < 0.3:
            kind = {
                "type": "list",
                "element-id": column + 1,
                "element": "int",
                "element-required": False,
            }
        wider = schema(number, *fields, field(column, f"c{column}", kind))
        self.add({"action": "add-schema", "schema": wider})
        if self.random.random() < 0.7:
            given = self.random.choice([-1, number])
            self.add_after_last({"action": "set-current-schema", "schema-id": given}, number)

    def add_after_last(self, update: Update, number: int) -> None:
        """Add an update that means the last added one; ``updated`` is asked for both as one."""
        key = next(name for name in update if name != "action")
        self.updates.append(update)
        self.parts = updated(self.parts, [{**update, key: number}], NOW, "t")

    def spec(self) -> None:
        number = self.next_number("partition-specs", "spec-id")
        top = self.parts["last-partition-id"] + 1
        part = {
            "source-id": self.some_column(),
            "field-id": top,
            "transform": self.random.choice(["identity", "bucket[4]"]),
            "name": f"part{top}",
        }
        self.add({"action": "add-spec", "spec": {"spec-id": number, "fields": [part]}})
        given = self.random.choice([-1, number])
        self.add_after_last({"action": "set-default-spec", "spec-id": given}, number)

    def order(self) -> None:
        number = self.next_number("sort-orders", "order-id")
        part = {
            "source-id": self.some_column(),
            "transform": f"bucket[{number + 1}]",
            "direction": "asc",
            "null-order": "nulls-first",
        }
        self.add({"action": "add-sort-order", "sort-order": {"order-id": number, "fields": [part]}})
        given = self.random.choice([-1, number])
        self.add_after_last({"action": "set-default-sort-order", "sort-order-id": given}, number)

    def append(self) -> None:
        number = self.random.getrandbits(62)
        self.add(snapshot(number, self.parts))
        if not self.has_moved_main:
            self.has_moved_main = True
            self.add(main_at(number))

    def ref(self) -> None:
        known = [one["snapshot-id"] for one in self.parts["snapshots"]]
        name = f"r{self.random.randrange(3)}"
        if not known or (name in self.parts["refs"] and self.random.random() < 0.4):
            self.add({"action": "remove-snapshot-ref", "ref-name": name})
            return
        kind = self.random.choice(["branch", "tag"])
        rules = {"max-ref-age-ms": 7} if self.random.random() < 0.3 else {}
        if kind == "branch" and self.random.random() < 0.3:
            rules |= {"min-snapshots-to-keep": 2, "max-snapshot-age-ms": 9}
        self.add(
            {
                "action": "set-snapshot-ref",
                "ref-name": name,
                "type": kind,
                "snapshot-id": self.random.choice(known),
                **rules,
            }
        )

    def statistics(self) -> None:
        known = [one["snapshot-id"] for one in self.parts["snapshots"]]
        if not known:
            return
        number = self.random.choice(known)
        of_parts = self.random.random() < 0.5
        name = "partition-statistics" if of_parts else "statistics"
        there = {one["snapshot-id"] for one in self.parts.get(name) or ()}
        if number in there and self.random.random() < 0.5:
            self.add({"action": f"remove-{name}", "snapshot-id": number})
            return
        one: Parts = {
            "snapshot-id": number,
            "statistics-path": f"s3://lake/t/metadata/{self.random.randrange(9)}.puffin",
            "file-size-in-bytes": 7,
        }
        if not of_parts:
            one |= {"file-footer-size-in-bytes": 3, "blob-metadata": []}
        self.add({"action": f"set-{name}", name: one})

    def removal(self) -> None:
        schemas = [
            one["schema-id"]
            for one in self.parts["schemas"]
            if one["schema-id"] != self.parts["current-schema-id"]
        ]
        specs = [
            one["spec-id"]
            for one in self.parts["partition-specs"]
            if one["spec-id"] != self.parts["default-spec-id"]
        ]
        if schemas and self.random.random() < 0.5:
            self.add({"action": "remove-schemas", "schema-ids": [self.random.choice(schemas)]})
        elif specs:
            self.add({"action": "remove-partition-specs", "spec-ids": [self.random.choice(specs)]})


KINDS: list[Callable[[Drawn], None]] = [
    Drawn.properties,
    Drawn.schema,
    Drawn.spec,
    Drawn.order,
    Drawn.append,
    Drawn.append,
    Drawn.ref,
    Drawn.statistics,
    Drawn.removal,
]


def as_pyiceberg_reads(parts: Parts) -> Any:
    """Return a file without what each writer decides for itself: times, and the metadata log."""
    read = TableMetadataUtil.parse_obj(copy.deepcopy(parts)).model_dump()
    return without_times(read)


def without_times(read: Parts) -> Parts:
    read.pop("last-updated-ms")
    read.pop("metadata-log")
    read["snapshot-log"] = [one["snapshot-id"] for one in read["snapshot-log"]]
    return read


def drawn(seed: int) -> tuple[Parts, list[list[Update]]]:
    """Return a table's first file, and requests that each fit the file after the one before."""
    random = Random(seed)
    first = parts = made(random.choice([2, 3]))
    requests = []
    for _ in range(4):
        request = Drawn(random, parts)
        for _ in range(random.randrange(1, 7)):
            random.choice(KINDS)(request)
        parts = updated(parts, request.updates, NOW, "t")
        assert parts == request.parts, "one after the other and at once are the same"
        requests.append(request.updates)
    return first, requests


def test_updates_make_the_file_that_pyiceberg_makes() -> None:
    kinds = set()
    for seed in range(first_seed(), first_seed() + SEEDS):
        parts, requests = drawn(seed)
        for updates in requests:
            base = TableMetadataUtil.parse_obj(copy.deepcopy(parts))
            asked = tuple(_updates.validate_python(copy.deepcopy(one)) for one in updates)
            before = copy.deepcopy(parts)
            after = updated(parts, updates, NOW, "t")
            assert parts == before, f"seed {seed} changed its argument"
            wanted = without_times(update_table_metadata(base, asked).model_dump())
            got = as_pyiceberg_reads(after)
            for name in ("partition-statistics", "statistics"):
                got[name] = got.get(name) or []
                wanted[name] = wanted.get(name) or []
            assert got == wanted, f"seed {seed}: {updates}"
            parts = after
            kinds.update(one["action"] for one in updates)
    beside_others = {
        "remove-snapshots",
        "assign-uuid",
        "set-location",
        "upgrade-format-version",
    }
    assert kinds >= KNOWN_UPDATES - beside_others


# -- what pyiceberg can't say ----------------------------------------------------------


def test_an_equal_schema_spec_or_order_is_the_one_that_is_there() -> None:
    parts = made()
    again = schema(7, field(1, "a"), {**field(2, "b", "string"), "doc": None})
    after = updated(
        parts,
        [
            {"action": "add-schema", "schema": again},
            {"action": "set-current-schema", "schema-id": -1},
            {"action": "add-spec", "spec": {"spec-id": 4, "fields": []}},
            {"action": "set-default-spec", "spec-id": -1},
            {"action": "add-sort-order", "sort-order": {"order-id": 3, "fields": []}},
            {"action": "set-default-sort-order", "sort-order-id": -1},
        ],
        NOW,
        "t",
    )
    assert after == parts


def test_a_taken_number_becomes_the_next_one() -> None:
    after = updated(
        made(),
        [
            {"action": "add-schema", "schema": schema(0, field(1, "a"))},
            {"action": "set-current-schema", "schema-id": -1},
        ],
        NOW,
        "t",
    )
    assert [one["schema-id"] for one in after["schemas"]] == [0, 1]
    assert after["current-schema-id"] == 1
    assert after["last-column-id"] == 2, "an id is never given out twice"


def test_a_partition_field_without_an_id_gets_that_of_an_equal_one() -> None:
    part = {"source-id": 1, "transform": "identity", "name": "a"}
    other = {"source-id": 1, "transform": "bucket[2]", "name": "h"}
    first = updated(made(), [{"action": "add-spec", "spec": {"fields": [part]}}], NOW, "t")
    after = updated(first, [{"action": "add-spec", "spec": {"fields": [other, part]}}], NOW, "t")
    ids = [[one["field-id"] for one in spec["fields"]] for spec in after["partition-specs"]]
    assert ids == [[], [1000], [1001, 1000]]
    assert after["last-partition-id"] == 1001


def test_a_removed_snapshot_takes_refs_statistics_and_earlier_history_with_it() -> None:
    parts = made()
    for number in (1, 2, 3):
        parts = updated(parts, [snapshot(number, parts), main_at(number)], NOW, "t")
    tag = {"action": "set-snapshot-ref", "ref-name": "old", "type": "tag", "snapshot-id": 2}
    stats = {
        "snapshot-id": 2,
        "statistics-path": "s3://lake/t/metadata/2.puffin",
        "file-size-in-bytes": 1,
        "file-footer-size-in-bytes": 1,
        "blob-metadata": [],
    }
    parts = updated(parts, [tag, {"action": "set-statistics", "statistics": stats}], NOW, "t")
    after = updated(parts, [{"action": "remove-snapshots", "snapshot-ids": [2, 9]}], NOW, "t")
    assert [one["snapshot-id"] for one in after["snapshots"]] == [1, 3]
    assert [one["snapshot-id"] for one in after["snapshot-log"]] == [3]
    assert after["refs"].keys() == {"main"}
    assert after["statistics"] == []
    assert after["snapshots"][1]["parent-snapshot-id"] == 2, "as Java leaves it"


def test_a_main_that_the_request_has_passed_is_not_in_the_history() -> None:
    parts = made()
    first = snapshot(1, parts)
    between = updated(parts, [first, main_at(1)], NOW, "t")
    after = updated(parts, [first, main_at(1), snapshot(2, between), main_at(2)], NOW, "t")
    assert [one["snapshot-id"] for one in after["snapshot-log"]] == [2]
    assert after["current-snapshot-id"] == 2


def test_a_main_that_is_removed_leaves_no_current_snapshot() -> None:
    parts = made()
    parts = updated(parts, [snapshot(1, parts), main_at(1)], NOW, "t")
    after = updated(parts, [{"action": "remove-snapshot-ref", "ref-name": "main"}], NOW, "t")
    assert after["current-snapshot-id"] == -1
    assert after["refs"] == {}
    assert [one["snapshot-id"] for one in after["snapshots"]] == [1]


def test_a_file_that_names_main_by_its_snapshot_alone_keeps_it() -> None:
    parts = made()
    parts = updated(parts, [snapshot(1, parts), main_at(1)], NOW, "t")
    del parts["refs"]
    tag = {"action": "set-snapshot-ref", "ref-name": "v", "type": "tag", "snapshot-id": 1}
    after = updated(parts, [tag], NOW, "t")
    assert after["refs"]["main"] == {"snapshot-id": 1, "type": "branch"}


def test_times_are_the_argument_s_and_never_go_back() -> None:
    parts = updated(made(), [snapshot(1, made()), main_at(1)], NOW + 50, "t")
    assert parts["snapshot-log"] == [{"snapshot-id": 1, "timestamp-ms": NOW + 50}]
    after = updated(parts, [{"action": "set-properties", "updates": {}}], NOW, "t")
    assert after["last-updated-ms"] == NOW + 50


def test_parts_that_this_version_does_not_know_stay() -> None:
    parts = {**made(), "next-thing": {"x": [1, None]}}
    after = updated(parts, [{"action": "set-properties", "updates": {"a": "b"}}], NOW, "t")
    assert after["next-thing"] == {"x": [1, None]}


def test_a_table_that_is_upgraded_gives_out_row_ids_from_then_on() -> None:
    parts = made()
    parts = updated(parts, [snapshot(1, parts), main_at(1)], NOW, "t")
    after = updated(parts, [{"action": "upgrade-format-version", "format-version": 3}], NOW, "t")
    assert (after["format-version"], after["next-row-id"]) == (3, 0)
    again = updated(after, [{"action": "upgrade-format-version", "format-version": 3}], NOW, "t")
    assert again == after
    with pytest.raises(InvalidOperation, match="version 3 can't be lowered to 2"):
        updated(after, [{"action": "upgrade-format-version", "format-version": 2}], NOW, "t")


def test_row_ids_are_counted_from_the_snapshot_s_first() -> None:
    parts = made(3)
    ahead = snapshot(1, parts, **{"first-row-id": 40})
    after = updated(parts, [ahead, main_at(1)], NOW, "t")
    assert after["next-row-id"] == 45


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"sequence-number": 1, "parent-snapshot-id": 1},
            "sequence number 1, as the last one is 1",
        ),
        ({"first-row-id": 2}, "first-row-id 2, as the next row id is 5"),
    ],
    ids=["sequence", "row ids"],
)
def test_a_snapshot_that_is_behind_is_a_conflict(changes: Parts, words: str) -> None:
    parts = made(3)
    parts = updated(parts, [snapshot(1, parts), main_at(1)], NOW, "t")
    with pytest.raises(ConflictError, match=words):
        updated(parts, [snapshot(2, parts, **changes)], NOW, "t")


def nested(depth: int) -> Any:
    kind: Any = "int"
    for number in range(depth):
        kind = {
            "type": "list",
            "element-id": 10 + number,
            "element-required": False,
            "element": kind,
        }
    return kind


def spec_of(*fields: tuple[str, int | None]) -> Update:
    listed = [
        {"source-id": source, "transform": "identity", "name": name}
        | ({} if number is None else {"field-id": number})
        for source, (name, number) in enumerate(fields, 1)
    ]
    return {"action": "add-spec", "spec": {"fields": listed}}


WRONG: dict[str, tuple[Update, str]] = {
    "unknown": ({"action": "make-coffee"}, "'make-coffee' is none that this version knows"),
    "no action": ({}, "None is none that this version knows"),
    "encrypted": ({"action": "add-encryption-key", "encryption-key": {}}, "has no keys"),
    "of a view": ({"action": "add-view-version"}, "of a view"),
    "malformed": ({"action": "set-location"}, "'set-location' is malformed"),
    "a word for a number": ({"action": "set-current-schema", "schema-id": "1"}, "is malformed"),
    "another uuid": ({"action": "assign-uuid", "uuid": UUID[::-1]}, "can't be set to"),
    "downgrade": ({"action": "upgrade-format-version", "format-version": 1}, "version 1 is none"),
    "too new": ({"action": "upgrade-format-version", "format-version": 4}, "version 4 is none"),
    "own property": (
        {"action": "set-properties", "updates": {"lakevilla.x": "1"}},
        "lakevilla.x is the lake's own",
    ),
    "own property removed": (
        {"action": "remove-properties", "removals": ["lakevilla.x"]},
        "lakevilla.x is the lake's own",
    ),
    "unknown schema": ({"action": "set-current-schema", "schema-id": 3}, "no schema 3"),
    "no last schema": ({"action": "set-current-schema", "schema-id": -1}, "no schema was added"),
    "one id twice": (
        {"action": "add-schema", "schema": schema(1, field(1, "a"), field(1, "b"))},
        "have one id",
    ),
    **{
        f"type {kind}": (
            {"action": "add-schema", "schema": schema(1, field(1, "a", kind))},
            "is no type of version 3",
        )
        for kind in ("int4", "", "decimal(39,2)", "decimal(3,4)", "fixed[0]", "list")
    },
    "type within": (
        {
            "action": "add-schema",
            "schema": schema(
                1, field(1, "a", {"type": "list", "element-id": 2, "element": "integer"})
            ),
        },
        "is no type of version 3",
    ),
    "current schema": ({"action": "remove-schemas", "schema-ids": [0]}, "current schema can't"),
    "unknown spec": ({"action": "set-default-spec", "spec-id": 3}, "no partition spec 3"),
    "no last spec": ({"action": "set-default-spec", "spec-id": -1}, "no partition spec was added"),
    "default spec": ({"action": "remove-partition-specs", "spec-ids": [0]}, "default partition"),
    "spec by no column": (
        {
            "action": "add-spec",
            "spec": {"fields": [{"source-id": 9, "transform": "identity", "name": "x"}]},
        },
        r"by column id \[9\]",
    ),
    "unknown order": ({"action": "set-default-sort-order", "sort-order-id": 3}, "no sort order 3"),
    "order by no column": (
        {
            "action": "add-sort-order",
            "sort-order": {"fields": [{"source-id": 9, "transform": "identity"}]},
        },
        r"by column id \[9\]",
    ),
    "ref of nothing": (main_at(9), "main can't be set to unknown snapshot 9"),
    "snapshot again": (snapshot(1, made(), **{"sequence-number": 5}), "a snapshot 1 already"),
    "main as a tag": ({**main_at(1), "type": "tag"}, "can't be made a tag"),
    "a tag that keeps": (
        {**main_at(1), "ref-name": "v", "type": "tag", "min-snapshots-to-keep": 1},
        "keeps no others",
    ),
    "kept by zero": ({**main_at(1), "max-ref-age-ms": 0}, "numbers above 0"),
    "an action that is no name": ({"action": []}, "is none that this version knows"),
    "more than 64 bits": (
        {"action": "add-schema", "schema": schema(2**64, field(3, "c"))},
        "more than 64 bits",
    ),
    "an id of more than 32 bits": (
        {"action": "add-schema", "schema": schema(1, field(2**31, "c"))},
        "a field has the id",
    ),
    "one name twice": (
        {"action": "add-schema", "schema": schema(1, field(1, "a"), field(3, "a"))},
        "have one name",
    ),
    "nested too deep": (
        {"action": "add-schema", "schema": schema(1, field(3, "c", nested(17)))},
        "nested more than 16 deep",
    ),
    "perhaps required": (
        {"action": "add-schema", "schema": schema(1, {**field(3, "c"), "required": "yes"})},
        "is malformed",
    ),
    "no fields": ({"action": "add-schema", "schema": schema(1)}, "has no field"),
    "identified by no field": (
        {
            "action": "add-schema",
            "schema": {**schema(1, field(1, "a")), "identifier-field-ids": [9]},
        },
        "fields that it lacks",
    ),
    "one partition name twice": (spec_of(("a", None), ("a", None)), "have one name"),
    "one partition id twice": (spec_of(("a", 1000), ("b", 1000)), "have one field-id"),
    "an order up": (
        {
            "action": "add-sort-order",
            "sort-order": {
                "fields": [
                    {
                        "source-id": 1,
                        "transform": "identity",
                        "direction": "up",
                        "null-order": "nulls-first",
                    }
                ]
            },
        },
        "another direction",
    ),
    "statistics of a word": (
        {
            "action": "set-statistics",
            "statistics": {"snapshot-id": "1", "statistics-path": "s3://lake/t/metadata/s"},
        },
        "is malformed",
    ),
    "snapshot below zero": (snapshot(-5, {**made(), "last-sequence-number": 1}), "below 0"),
    "the last sequence number": (
        snapshot(2, made(), **{"sequence-number": 2**63 - 1}),
        "no sequence numbers for others",
    ),
    "the last row id": (
        snapshot(
            2, {**made(), "last-sequence-number": 1}, **{"first-row-id": 9, "added-rows": 2**62}
        ),
        "no row ids for others",
    ),
    "no row ids": (snapshot(2, {**made(), "last-sequence-number": 1}), "does not say first-row-id"),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_update_that_does_not_fit_is_refused_by_name(name: str) -> None:
    parts = made(3)
    parts = updated(parts, [snapshot(1, parts), main_at(1)], NOW, "t")
    before = copy.deepcopy(parts)
    update, words = WRONG[name]
    with pytest.raises(InvalidOperation, match=words) as raised:
        updated(parts, [{"action": "set-properties", "updates": {"a": "b"}}, update], NOW, "t")
    assert raised.value.table == "t"
    assert parts == before


def test_a_table_of_version_1_is_refused() -> None:
    with pytest.raises(InvalidOperation, match="upgrade it with `alter` to version 2"):
        updated({**made(), "format-version": 1}, [], NOW, "t")


@pytest.mark.parametrize("left_out", ["assign-uuid", "set-location", "add-schema"])
def test_a_table_that_is_made_needs_its_first_parts(left_out: str) -> None:
    request = [
        {"action": "assign-uuid", "uuid": UUID},
        {"action": "add-schema", "schema": schema(0, field(1, "a"))},
        {"action": "set-location", "location": "s3://lake/t"},
    ]
    with pytest.raises(InvalidOperation, match="it is made, and the request does not say its"):
        updated(None, [one for one in request if one["action"] != left_out], NOW, "t")


# -- requirements ------------------------------------------------------------------------

HELD: list[Parts] = [
    {"type": "assert-table-uuid", "uuid": UUID.upper()},
    {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 1},
    {"type": "assert-ref-snapshot-id", "ref": "none", "snapshot-id": None},
    {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 2},
    {"type": "assert-current-schema-id", "current-schema-id": 0},
    {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 999},
    {"type": "assert-default-spec-id", "default-spec-id": 0},
    {"type": "assert-default-sort-order-id", "default-sort-order-id": 0},
]
NOT_HELD: list[tuple[Parts, str]] = [
    ({"type": "assert-create"}, "table already exists"),
    (
        {"type": "assert-table-uuid", "uuid": "other"},
        f"UUID does not match: expected {UUID} != other",
    ),
    (
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None},
        "branch main was created concurrently",
    ),
    (
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 2},
        "branch main has changed: expected id 2 != 1",
    ),
    (
        {"type": "assert-ref-snapshot-id", "ref": "v", "snapshot-id": 2},
        "branch or tag v is missing, expected 2",
    ),
    (
        {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 7},
        "last assigned field id changed: expected id 7 != 2",
    ),
    (
        {"type": "assert-current-schema-id", "current-schema-id": 7},
        "current schema changed: expected id 7 != 0",
    ),
    (
        {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 7},
        "last assigned partition id changed: expected id 7 != 999",
    ),
    (
        {"type": "assert-default-spec-id", "default-spec-id": 7},
        "default partition spec changed: expected id 7 != 0",
    ),
    (
        {"type": "assert-default-sort-order-id", "default-sort-order-id": 7},
        "default sort order changed: expected id 7 != 0",
    ),
]


def with_a_snapshot() -> Parts:
    parts = made()
    return updated(parts, [snapshot(1, parts), main_at(1)], NOW, "t")


def test_requirements_that_hold_say_nothing() -> None:
    check_requirements(with_a_snapshot(), HELD, "t")
    check_requirements(None, [{"type": "assert-create"}], "t")


@pytest.mark.parametrize(
    ("requirement", "words"), NOT_HELD, ids=[one["type"] for one, _ in NOT_HELD]
)
def test_a_requirement_that_does_not_hold_is_told_in_the_words_of_java(
    requirement: Parts, words: str
) -> None:
    with pytest.raises(ConflictError) as raised:
        check_requirements(with_a_snapshot(), [*HELD, requirement], "t")
    assert raised.value.message == f"Requirement failed: {words}"


def test_each_requirement_fails_where_there_is_no_table() -> None:
    for requirement in HELD:
        with pytest.raises(ConflictError, match="current table metadata is missing"):
            check_requirements(None, [requirement], "t")
    assert {one["type"] for one in HELD} == KNOWN_REQUIREMENTS - {"assert-create"}


@pytest.mark.parametrize(
    ("requirement", "words"),
    [
        ({"type": "assert-luck"}, "'assert-luck' is none that this version knows"),
        ({"type": []}, "is none that this version knows"),
        ({"type": "assert-table-uuid"}, "'assert-table-uuid' is malformed"),
    ],
)
def test_an_unknown_or_malformed_requirement_is_refused_by_name(
    requirement: Parts, words: str
) -> None:
    with pytest.raises(InvalidOperation, match=words) as raised:
        check_requirements(made(), [requirement], "t")
    assert isinstance(raised.value, LakeVillaError)


@pytest.mark.parametrize("kind", ["variant", "timestamp_ns", "geometry", "geography(OGC:CRS84)"])
def test_a_type_of_version_3_is_one_once_the_table_has_it(kind: str) -> None:
    added = {"action": "add-schema", "schema": schema(1, field(1, "a", kind))}
    upgraded = {"action": "upgrade-format-version", "format-version": 3}
    assert updated(made(), [upgraded, added], 0, "t")["schemas"][-1]["fields"][0]["type"] == kind
    with pytest.raises(InvalidOperation, match="no type of version 2"):
        updated(made(), [added, upgraded], 0, "t")


def test_a_request_compares_each_schema_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[object] = []
    before, parts_of = made(), module._schema_parts

    def counted(one: Any) -> Any:
        compared.append(one)
        return parts_of(one)

    monkeypatch.setattr(module, "_schema_parts", counted)
    added = [
        {"action": "add-schema", "schema": schema(number, field(number, "a"))}
        for number in range(1, 101)
    ]
    after = updated(before, added, 0, "t")
    assert len(compared) == len(after["schemas"]) == 101
    again = updated(after, added, 0, "t")
    assert again["schemas"] == after["schemas"]
    one_more = {"action": "add-schema", "schema": schema(0, field(500, "b"))}
    with pytest.raises(InvalidOperation, match="at most 100 schemas"):
        updated(made(), [*added, one_more], 0, "t")


def test_a_schema_that_was_removed_is_added_again() -> None:
    added = {"action": "add-schema", "schema": schema(1, field(5, "a"))}
    removed = {"action": "remove-schemas", "schema-ids": [1]}
    after = updated(made(), [added, removed, added], 0, "t")
    assert [one["schema-id"] for one in after["schemas"]] == [0, 1]
