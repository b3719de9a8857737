"""Clients that follow the change feed while other clients write, and keep a copy by the feed alone.

A client stores its copy and its position together, as a consumer does that must apply each version
once. A client that crashes continues from there, and knows nothing else. Some followers absorb
commits of clients without LakeVilla.
"""

from __future__ import annotations

from collections.abc import Callable

from lakevilla.api.feed.absorbing import Absorber
from lakevilla.api.feed.walk import ALL, stretch
from lakevilla.errors import LakeVillaError
from lakevilla.lake.context import Context
from lakevilla.store.effects import Program, sleep
from lakevilla_testing.checks.feed import Copy, state_after
from lakevilla_testing.histories.attempts import World, context_of
from lakevilla_testing.world.client import Client

#: Errors of a follower that other clients may cause; then it tries again.
_MAY_FAIL = ("store", "outcome_unknown", "version_not_found")


def follower(world: World) -> Callable[[Client], Program[None]]:
    """Return the program of a follower, also of the process that replaces a crashed one."""
    copy = Copy()
    world.copies.append(copy)
    return lambda client: _follow(world, client, copy)


def _follow(world: World, client: Client, copy: Copy) -> Program[None]:
    context = context_of(client)
    absorber = Absorber(context, ALL)
    for _ in range(10):
        longest = 8 * 3600.0 if world.plan.long and client.random.random() < 0.3 else 2.0
        yield from sleep(longest * client.random.random())
        try:
            if client.random.random() < 0.4:
                world.events["absorbed"] += yield from absorber.absorb()
            yield from catch_up(context, copy, most=client.random.choice((1, 3, 100)))
        except LakeVillaError as error:
            if error.kind not in _MAY_FAIL:
                raise


def catch_up(context: Context, copy: Copy, most: int | None = None) -> Program[None]:
    """Apply the new steps, at most ``most`` of them."""
    held = yield from context.head()
    if held is None:
        return
    found = yield from stretch(context, held.head, copy.position, held.head.sequence)
    for step in list(found.steps(ALL, {}, net=False))[:most]:
        state = yield from state_after(context, found, step, copy.state)
        copy.move(step.commit.sequence, state)
