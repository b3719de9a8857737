"""A wait of a mailbox ends in time, and no item is lost."""

from __future__ import annotations

import os
import queue
import signal
import threading
from threading import Event
from time import monotonic

import pytest

from lakevilla.mailbox import Mailbox


def test_a_wait_ends_in_time_if_a_signal_s_handler_takes_longer() -> None:
    # ``queue.SimpleQueue`` waits for ever: its time is over when it begins to wait again.
    box: Mailbox[None] = Mailbox()
    before = signal.signal(signal.SIGUSR1, lambda number, frame: Event().wait(0.2))
    rescue = threading.Timer(20, box.put, (None,))
    rescue.start()
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    try:
        with pytest.raises(queue.Empty):
            box.get(timeout=0.1)
    finally:
        rescue.cancel()
        signal.signal(signal.SIGUSR1, before)


def test_a_wait_lasts_as_long_as_it_says() -> None:
    box: Mailbox[int] = Mailbox()
    box.put(1)
    box.put(2)
    assert (box.get(timeout=0), box.get(), box.empty()) == (1, 2, True)
    # What was put before, and is taken, does not end a later wait.
    begun = monotonic()
    with pytest.raises(queue.Empty):
        box.get(timeout=0.05)
    assert monotonic() - begun >= 0.05


def test_every_item_arrives_in_its_order() -> None:
    box: Mailbox[tuple[int, int]] = Mailbox()

    def put(sender: int) -> None:
        for number in range(2000):
            box.put((sender, number))

    senders = [threading.Thread(target=put, args=(number,)) for number in range(4)]
    for thread in senders:
        thread.start()
    got = [box.get(timeout=60) for _ in range(8000)]
    for sender in range(4):
        assert [n for one, n in got if one == sender] == list(range(2000))
    assert box.empty()
    for thread in senders:
        thread.join()
