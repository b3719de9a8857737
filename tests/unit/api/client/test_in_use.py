"""A transaction that a thread of this process has open is recognised as its own."""

from __future__ import annotations

import gc
import threading

from lakevilla.api.client.background import Use, is_callers
from tests.support.simulated.memory_lake import MemoryLake


def test_a_transaction_belongs_to_its_thread_until_it_ends() -> None:
    peer = MemoryLake().peer()
    txn = peer.appending("a", 7)
    use = Use(txn)
    assert not is_callers(txn.id)
    use.begin()
    use.end()
    assert is_callers(txn.id)
    peer.commit(txn)
    assert not is_callers(txn.id)


def test_a_transaction_does_not_belong_to_another_thread() -> None:
    txn = MemoryLake().peer().begin()
    use = Use(txn)
    use.begin()
    use.end()
    seen: list[bool] = []
    thread = threading.Thread(target=lambda: seen.append(is_callers(txn.id)))
    thread.start()
    thread.join()
    assert seen == [False]


def test_a_transaction_whose_use_is_garbage_collected_belongs_to_no_thread() -> None:
    txn = MemoryLake().peer().begin()
    use = Use(txn)
    use.begin()
    use.end()
    del use
    gc.collect()
    assert not is_callers(txn.id)


def test_a_transaction_copied_into_a_forked_child_does_not_belong_to_the_child() -> None:
    use = Use(MemoryLake().peer().begin())
    use.begin()
    assert use.is_of_this_process
    use.process += 1
    assert not use.is_of_this_process
    assert not use.is_open_in(threading.get_ident())
