"""Planted bugs of the leaves: each is searched for in histories whose HEAD lists leaves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lakevilla.global_log import repo
from lakevilla.global_log.leaves import LeafMap, LeafPlan
from lakevilla.maintenance.gc import garbage as unreferenced_leaves
from lakevilla.store.base import ANY
from lakevilla.store.effects import Program, put
from lakevilla_testing.planted.bugs import attribute, instead, planted


@planted(first_seed=3, kinds=("lists", "transfer"), short=True)
def leaf_stored_after_head() -> Iterator[None]:
    """HEAD names leaves that are not stored yet."""
    storing, replacing = repo.store_leaves, repo.replace_head
    late: dict[str, bytes] = {}

    def store_leaves(head: Any) -> Program[None]:
        for found in repo.maps_of(head):
            yield from repo.fetch_leaves(found, found.unread())
            plan = found.planned(head.replacement)
            if plan is not None:
                late.update(plan.bodies)
                found.settle(plan)

    def replace_head(held: Any, new: Any) -> Program[Any]:
        outcome = yield from replacing(held, new)
        for ref in (*new.tables.refs, *new.names.refs):
            if ref.key in late:
                yield from put(ref.key, late[ref.key], ANY)
        return outcome

    with instead(storing, store_leaves), instead(replacing, replace_head):
        yield


@planted(kinds=("lists", "transfer"), short=True)
def leaf_not_rewritten() -> Iterator[None]:
    """The change of a commit in a leaf stays only in the memory of the client that has made it."""
    original = LeafMap.planned

    def planned(self: LeafMap[Any], made: int, epoch: str = "") -> LeafPlan[Any] | None:
        plan = original(self, made, epoch)
        if plan is None or not self.refs:
            return plan
        return LeafPlan(self.refs, self._leaves, {})

    with attribute(LeafMap, "planned", planned):
        yield


@planted(kinds=("lists", "transfer"), short=True)
def leaf_beside_its_place() -> Iterator[None]:
    """Only the last leaf that a commit changes is named by its HEAD."""
    original = LeafMap.planned

    def planned(self: LeafMap[Any], made: int, epoch: str = "") -> LeafPlan[Any] | None:
        plan = original(self, made, epoch)
        if plan is None or len(plan.refs) != len(self.refs) or len(plan.bodies) < 2:
            return plan
        refs = list(plan.refs)
        first = next(n for n, (a, b) in enumerate(zip(refs, self.refs, strict=True)) if a != b)
        refs[first] = self.refs[first]
        return LeafPlan(tuple(refs), {**self._leaves, **plan.leaves}, plan.bodies)

    with attribute(LeafMap, "planned", planned):
        yield


@planted(for_histories=False)
def leaf_deleted_before_its_head() -> Iterator[None]:
    """Gc deletes an object that HEAD does not name, even if the HEAD that names it is about to be
    stored.
    """

    def is_unreferenced(key: str, mark: Any) -> bool:
        return key not in mark.named

    with instead(unreferenced_leaves._is_unreferenced, is_unreferenced):
        yield
