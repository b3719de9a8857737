"""Clients that make refs and delete them, and clean up around them, while other clients write."""

from __future__ import annotations

from lakevilla.branches.change import all_refs, delete_ref
from lakevilla.branches.create import At, create_ref
from lakevilla.branches.keep import keep as keep_apart
from lakevilla.errors import LakeVillaError
from lakevilla.global_log.refs import RefEntry
from lakevilla.lake.context import Context
from lakevilla.maintenance import vacuum
from lakevilla.store.effects import Program, sleep
from lakevilla_testing.histories.attempts import World, context_of, set_wrong
from lakevilla_testing.histories.plan import TABLES
from lakevilla_testing.world.client import Client
from lakevilla_testing.world.faults import Fault

_ACTS = ("now", "now", "version", "version", "ref", "delete", "vacuum", "vacuum")
_NAMES = ("red", "blue", "green", "gray")
#: Retentions of a vacuum, above the error of clocks: running transactions may need files that were
#: removed since.
_RETENTION_SECONDS = (6 * 3600.0, 9 * 3600.0)
#: The errors of keepers that other clients may cause: none of them does harm.
_MAY_FAIL = (
    "store",
    "outcome_unknown",
    "conflict",
    "ref_exists",
    "ref_not_found",
    "version_not_found",
    "table_not_found",
)


def keep(world: World, client: Client) -> Program[None]:
    """Run one keeper to its end."""
    set_wrong(world, client)
    context = context_of(client)
    for _ in range(6):
        longest = 8 * 3600.0 if world.plan.long and client.random.random() < 0.5 else 3.0
        yield from sleep(longest * client.random.random())
        try:
            acts = (*_ACTS, "keep", "keep", "keep") if world.plan.keeps_apart else _ACTS
            yield from _act(world, context, client, client.random.choice(acts))
        except LakeVillaError as error:
            if error.kind not in _MAY_FAIL:
                raise


def delete_all(context: Context) -> Program[None]:
    """Delete all refs."""
    for name in (yield from all_refs(context)):
        yield from delete_ref(context, name)


def _act(world: World, context: Context, client: Client, act: str) -> Program[None]:
    name = client.random.choice(_NAMES)
    match act:
        case "now":
            yield from _tag(world, context, name, None)
        case "version":
            held = yield from context.head()
            first, last = (0, 0) if held is None else (held.head.history_start, held.head.sequence)
            yield from _tag(
                world, context, name, ("version", client.random.randint(min(first, last), last))
            )
        case "ref":
            refs = sorted((yield from all_refs(context)))
            if refs:
                yield from _tag(world, context, name, ("ref", client.random.choice(refs)))
        case "delete":
            world.deleted_refs.add(name)
            yield from delete_ref(context, name)
        case "keep":
            for known in sorted((yield from all_refs(context))):
                report = yield from keep_apart(context, known)
                kept = [finding for finding in report.findings if finding.kind == "kept"]
                world.events["kept apart"] += len(kept)
        case "vacuum":
            yield from vacuum.vacuum(
                context,
                client.random.choice(TABLES),
                retention_seconds=client.random.choice(_RETENTION_SECONDS),
                dry_run=False,
                enforce_retention=False,
            )
            client.simulation.fired[Fault.CLEAN_UP] += 1


def _tag(world: World, context: Context, name: str, at: At) -> Program[RefEntry]:
    entry = yield from create_ref(
        context, name, "tag", at, tables=None, protected=False, metadata={}, created_by="keeper"
    )
    world.made_refs.append((name, entry))
    return entry
