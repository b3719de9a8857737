"""The lake's first commit beside upkeep of a client that has seen no lake yet."""

import pytest

from lakevilla.errors import ConflictError
from lakevilla.store.effects import Get
from tests.support.simulated.commits import Process, add_to, alone, begin, commit, lake
from tests.support.simulated.upkeep import vacuums


def first_commit(client):
    txn = begin(client)
    yield from add_to(txn, "a", 1)
    return (yield from commit(txn))


def test_a_vacuum_is_to_be_tried_again_if_the_lake_was_made_under_it():
    simulation = lake(warm=False)
    process = Process(simulation, vacuums).until("lake.json", Get)
    alone(simulation, first_commit, "writer")
    with pytest.raises(ConflictError, match="has entered the lake"):
        process.finish()
