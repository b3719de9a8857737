"""The scheduler of xdist that sends units of tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdist.scheduler import LoadGroupScheduling

from tests.support.units import units

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController


class UnitScheduling(LoadGroupScheduling):
    """Send a worker the next unit when it has two tests left."""

    _units: dict[str, str]

    def schedule(self) -> None:
        """Cut the tests into units when all workers have collected them."""
        if self.collection is None:
            self._units = units(next(iter(self.registered_collections.values())))
        super().schedule()

    def mark_test_complete(
        self, node: WorkerController, item_index: int, duration: float = 0
    ) -> None:
        """Forget a unit that is done: the tests that a worker has left are counted each time."""
        unit = self._split_scope(self.registered_collections[node][item_index])
        super().mark_test_complete(node, item_index, duration)
        if all(self.assigned_work[node][unit].values()):
            del self.assigned_work[node][unit]

    def _split_scope(self, nodeid: str) -> str:
        return self._units[nodeid]
