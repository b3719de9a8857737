"""The parts of one history, drawn from its seed.

A mix in which a little of everything happens never shows bugs that need much of one thing and none
of another; so most features of a plan are off in most histories (swarm testing).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

from lakevilla.formats.base import FormatName
from lakevilla.formats.delta import log
from lakevilla.global_log import bases, head, leaves
from lakevilla.global_log.inbox import proposal
from lakevilla.global_log.rules import Isolation, Validation
from lakevilla.lake import context as tail
from lakevilla.settings import Settings
from lakevilla.transaction.commit.together import combine, group
from lakevilla.transaction.state.values import Feature

TABLES = ("a", "b", "c")
#: The format of all tables, or "mixed": some tables have one format and some the other.
LakeFormat = Literal["delta", "iceberg", "mixed"]
#: The clients that clean up around pending commits.
Neglect = Literal["", "ours", "others"]
#: The Iceberg tables of a mixed lake.
_OTHERS = ("b", "n2")
#: The table that has format version 2 first, where the others have 3.
UPGRADED = "b"
#: The table that a client without LakeVilla may delete and make again.
RECREATED = "c"

_MIXES: tuple[tuple[Feature, ...], ...] = (
    (Feature.R | Feature.I,),
    (Feature.R | Feature.I,),
    (Feature.R | Feature.I, Feature.I),
    (Feature.I,),
    (Feature.R,),
    (Feature.NONE,),
    (Feature.NONE, Feature.R),
    (Feature.R | Feature.I, Feature.R),
    (Feature.NONE, Feature.R, Feature.I, Feature.R | Feature.I),
)

_CT = Feature.R | Feature.CT
_CTI = Feature.R | Feature.CT | Feature.I

_QUEUED: tuple[tuple[Feature, ...], ...] = (
    (_CTI,),
    (_CT,),
    (_CT, _CTI),
    (Feature.CT | Feature.I, _CTI),
    (_CTI, Feature.R | Feature.I),
    (_CT, Feature.R | Feature.I),
    (_CT, Feature.R),
    (_CTI, Feature.R, Feature.NONE),
    (Feature.CT, _CT, _CTI, Feature.R | Feature.I, Feature.R, Feature.NONE),
)

#: All features from which transactions of one history may choose, on the same tables.
EVERYONE: tuple[Feature, ...] = (Feature.NONE, Feature.R, Feature.R | Feature.I, _CT, _CTI)

_KINDS = (
    "transfer",
    "lists",
    "lists",
    "add",
    "take",
    "skew",
    "snapshot",
    "lifecycle",
    "keyed",
    "numbered",
    "shared",
    "alter",
    "merge",
    "optimize",
)

#: Kinds that run next to changes of schema.
_BESIDE = ("transfer", "lists", "add", "take", "snapshot", "shared", "merge", "optimize", "keyed")

_FOREIGN = ("append", "rewrite", "optimize", "property", "checkpoint", "clean", "touch")
_HARSH = ("restore", "recreate")


@dataclass(frozen=True)
class Level:
    """The isolation level and the validation of a transaction."""

    isolation: Isolation = "serializable"
    validation: Validation = "precise"
    slack: int = 0

    @property
    def lenient(self) -> bool:
        """True if the transaction's reads may be outdated at its commit."""
        return self.isolation == "snapshot" or self.slack > 0


SERIALIZABLE = Level()
_SNAPSHOT = Level("snapshot")

_LEVELS: tuple[tuple[Level, ...], ...] = (
    (_SNAPSHOT,),
    (_SNAPSHOT, SERIALIZABLE),
    (SERIALIZABLE, Level("write-serializable"), _SNAPSHOT),
    (Level(validation="rules"), SERIALIZABLE),
    (Level("snapshot", "rules"), _SNAPSHOT),
    (Level(slack=1), Level(slack=3), SERIALIZABLE),
    (Level(validation="rules", slack=2), Level("write-serializable", "rules"), _SNAPSHOT),
)


@dataclass(frozen=True)
class Plan:
    """One history's clients, workload and faults.

    Attributes
    ----------
    commits_again : bool
        Commits are interrupted, and called again after that and after an unknown answer.
    neglected : str
        Pending commits are left for a week and clean-ups run around them (``ours``), also by other
        clients (``others``). Then a client rewrites each table, before the lake is recovered.
    attempts : int
        Number of times that a transaction that loses is run, as ``lake.run`` does.
    features : tuple of Feature
        Each transaction picks one.
    kinds : tuple of str
        The work of transactions; see ``workloads``.
    formats : str
        The formats of the tables; see ``format_of``.
    reshaped : bool
        Tables have two columns more, whose names change; see ``reshaping``.
    few_versions : bool
        A client that commits to an Iceberg table deletes its old metadata files but for four.
    levels : tuple of Level
        Each transaction picks one.
    foreign : tuple of str
        The acts of the client without LakeVilla; if none, there is no such client.
    threads : int
        Threads of each client, each with transactions of its own; they share one lake object.
    collects : bool
        A client runs ``gc`` now and then.
    intensity : float
        Of the faults; 0 for none.
    long : bool
        Hours pass between transactions.
    short : bool
        Pages and tails are a few entries long, and blocks of pages have two.
    combined : bool
        Transactions defer their operations, so that those of one client may share a version.
    chained : bool
        Most transactions wait for their turn in a chain.
    told : bool
        Some transactions have metadata, or an application's version, or are validated by rules.
    window : int
        The number of replacements of HEAD that may include a proposal.
    limited : bool
        The store takes one write of an object a second.
    marks : bool
        Tables of Delta, and of version 3 of Iceberg, allow deletion vectors.
    whole : bool
        The map of tables stays in HEAD nevertheless, and so in its pages.
    crowded : bool
        Commits use the inbox wherever they can, as if many processes were at work.
    keepers : int
        Clients that make refs and delete them, and vacuum with a short retention.
    keeps_apart : bool
        They also keep refs from the clean-up of other clients.
    version : int
        The format version of Iceberg tables. With 3, one table begins with 2 and is upgraded.
    followers : int
        Clients that follow the change feed, and absorb the commits of other clients.
    givers : int
        Iceberg clients that make snapshots and ask the lake for commits.
    made : bool
        They also make tables.
    """

    seed: int
    features: tuple[Feature, ...]
    kinds: tuple[str, ...]
    foreign: tuple[str, ...] = ()
    clients: int = 4
    transactions: int = 3
    collects: bool = False
    intensity: float = 1.0
    content_tags: bool = False
    long: bool = False
    short: bool = False
    guarded: bool = False
    attempts: int = 3
    threads: int = 1
    levels: tuple[Level, ...] = (SERIALIZABLE,)
    settings: Settings = field(default_factory=Settings)
    formats: LakeFormat = "delta"
    few_versions: bool = False
    reshaped: bool = False
    commits_again: bool = False
    neglected: Neglect = ""
    crowded: bool = False
    keepers: int = 0
    keeps_apart: bool = False
    followers: int = 0
    givers: int = 0
    made: bool = False
    whole: bool = False
    version: int = 2
    marks: bool = False
    combined: bool = False
    chained: bool = False
    limited: bool = False
    told: bool = False
    window: int = proposal.WINDOW

    def format_of(self, table: str) -> FormatName:
        """Return the format of a table of the lake."""
        if self.formats == "mixed":
            return "iceberg" if table in _OTHERS else "delta"
        return self.formats

    @property
    def isolated(self) -> bool:
        """True if all transactions that write are validated in HEAD: with Feature.I or CT."""
        return all(features & (Feature.I | Feature.CT) for features in self.features)

    @property
    def harsh(self) -> bool:
        """True if some client without LakeVilla takes rows back."""
        return any(kind in _HARSH for kind in self.foreign)


def draw(seed: int) -> Plan:
    """Return the plan of the history that a seed draws."""
    source = random.Random(f"{seed}/plan")
    # Settings under which gc has transactions to fence while clients are at work.
    brisk = source.random() < 0.3
    settings = (
        Settings(max_age_seconds=300.0, outcome_retention_seconds=7200.0) if brisk else Settings()
    )
    foreign: tuple[str, ...] = ()
    if source.random() < 0.6:
        foreign = tuple(source.sample(_FOREIGN, source.randint(1, 3)))
        if source.random() < 0.15:
            foreign = (*foreign, source.choice(_HARSH))
    plan = Plan(
        seed,
        features=source.choice(_MIXES),
        kinds=tuple(source.sample(_KINDS, source.randint(2, 5))),
        foreign=foreign,
        transactions=source.choice((2, 3, 3, 4)),
        collects=source.random() < 0.35,
        intensity=source.choice((0.0, 0.5, 1.0, 1.0, 2.0)),
        content_tags=source.random() < 0.2,
        long=source.random() < 0.25,
        short=source.random() < 0.3,
        guarded=source.random() < 0.1,
        settings=settings,
    )
    # From separate sources of randomness: the draws above are the same without them.
    queues = random.Random(f"{seed}/queues")
    plan = replace(plan, settings=_hasty(plan.settings, queues))
    if queues.random() < 0.5:
        plan = replace(plan, features=queues.choice(_QUEUED), attempts=5)
    threads = random.Random(f"{seed}/threads")
    if threads.random() < 0.4:
        plan = replace(plan, threads=threads.choice((2, 3, 5)), clients=threads.choice((1, 2, 3)))
    levels = random.Random(f"{seed}/levels")
    if levels.random() < 0.3:
        plan = replace(plan, levels=levels.choice(_LEVELS))
    plan = _with_ends(plan, random.Random(f"{seed}/again"))
    crowd = random.Random(f"{seed}/crowd")
    if crowd.random() < 0.25:
        plan = replace(plan, crowded=True, kinds=(*plan.kinds, "add", "add"))
    plan = replace(plan, whole=random.Random(f"{seed}/whole").random() < 0.5)
    mix = random.Random(f"{seed}/mix")
    return _with_everyone(plan, mix) if mix.random() < 0.1 else plan


def _with_ends(plan: Plan, source: random.Random) -> Plan:
    """Draw the ends of commits, and the treatment of pending ones."""
    commits_again = source.random() < 0.3
    neglected: Neglect = source.choice(("ours", "others")) if source.random() < 0.15 else ""
    kinds = (*plan.kinds, "revise") if source.random() < 0.2 or neglected else plan.kinds
    if neglected and "clean" in plan.foreign:
        # Pending commits must exist when the log before them is cleaned up.
        kinds = (*kinds, "add", "add")
    return replace(plan, commits_again=commits_again, neglected=neglected, kinds=kinds)


def draw_mix(seed: int) -> Plan:
    """Return the plan of a seed with every kind of transaction, and other clients too."""
    return _with_everyone(draw(seed), random.Random(f"{seed}/mix"))


def draw_reshaped(seed: int, formats: LakeFormat) -> Plan:
    """Return the plan of a seed with tables whose columns change, by clients of all kinds."""
    source = random.Random(f"{seed}/reshaped")
    plan = draw_formats(seed, formats)
    foreign = tuple(kind for kind in plan.foreign if kind not in _HARSH)
    if source.random() < 0.5:
        foreign = (*foreign, "reshape")
    kinds = ("reshape", "reshape", *source.sample(_BESIDE, 2))
    return replace(plan, reshaped=True, kinds=kinds, foreign=foreign)


def draw_kept(seed: int, formats: LakeFormat) -> Plan:
    """Return the plan of a seed with clients that make refs of the states, over hours."""
    source = random.Random(f"{seed}/kept")
    plan = draw_formats(seed, formats)
    usual = tuple(kind for kind in plan.foreign if kind not in (*_HARSH, "clean"))
    return replace(
        plan,
        keepers=source.choice((1, 2, 2)),
        foreign=(*usual, "rewrite", "optimize") if source.random() < 0.6 else usual,
        long=source.random() < 0.7,
        collects=source.random() < 0.6,
        few_versions=False,
        neglected="",
        kinds=(*plan.kinds, "optimize", "add"),
    )


def draw_followed(seed: int, formats: LakeFormat) -> Plan:
    """Return the plan of a seed with clients that follow the change feed."""
    source = random.Random(f"{seed}/followed")
    plan = draw_formats(seed, formats)
    usual = tuple(kind for kind in plan.foreign if kind != "recreate")
    return replace(
        plan,
        followers=source.choice((1, 2)),
        foreign=(*usual, "rewrite", "append") if source.random() < 0.7 else usual,
        kinds=(*plan.kinds, "add", "lifecycle"),
    )


def draw_given(seed: int, formats: LakeFormat) -> Plan:
    """Return the plan of a seed with Iceberg clients whose commits are decided as they are."""
    source = random.Random(f"{seed}/given")
    plan = draw_formats(seed, formats)
    foreign = tuple(kind for kind in plan.foreign if kind not in _HARSH)
    if source.random() < 0.5:
        foreign = (*foreign, "append", "rewrite")
    return replace(
        plan,
        givers=source.choice((1, 2, 3)),
        clients=source.choice((1, 2, 3)),
        version=source.choice((2, 3)),
        foreign=foreign,
        made=source.random() < 0.5,
    )


def draw_marked(seed: int, formats: LakeFormat) -> Plan:
    """Return the plan of a seed with tables whose deleted rows are marked in the log."""
    source = random.Random(f"{seed}/marked")
    plan = draw_formats(seed, formats)
    foreign = plan.foreign
    if foreign and formats != "iceberg":
        foreign = (*foreign, "mark", "mark")
    kinds = (*plan.kinds, "transfer", "share", "share", "take", "merge", "optimize")
    plan = replace(plan, marks=True, foreign=foreign, kinds=kinds, version=3)
    if formats == "iceberg" and source.random() < 0.5:
        plan = replace(plan, foreign=(*plan.foreign, "append", "touch", "touch", "upgrade"))
    return plan


def draw_hot(seed: int, formats: LakeFormat) -> Plan:
    """Return the plan of a seed in which the threads of few clients change the same rows."""
    source = random.Random(f"{seed}/hot")
    plan = draw_formats(seed, formats)
    hot = _hot(source, plan)
    inbox = random.Random(f"{seed}/inbox")
    if inbox.random() < 0.5:
        return replace(hot, crowded=False)
    # Their operations go by the inbox: the clients perform each other's.
    clients, threads = inbox.choice((2, 3, 4)), inbox.choice((1, 1, 2, 3))
    return replace(hot, crowded=True, clients=clients, threads=threads)


def draw_told(seed: int, formats: LakeFormat) -> Plan:
    """Return the plan of a seed in which some transactions on hot rows tell the log more."""
    window = random.Random(f"{seed}/window").choice((1, 2, proposal.WINDOW))
    return replace(draw_hot(seed, formats), told=True, window=window)


def _hot(source: random.Random, plan: Plan) -> Plan:
    return replace(
        plan,
        combined=True,
        features=(Feature.R | Feature.I,),
        kinds=("hot", "hot", "transfer", *source.sample(("merge", "take", "lists", "add"), 2)),
        threads=source.choice((3, 4, 6)),
        clients=source.choice((1, 1, 2, 3)),
        commits_again=source.random() < 0.5,
        foreign=plan.foreign if source.random() < 0.5 else (),
        levels=(SERIALIZABLE,) if source.random() < 0.8 else plan.levels,
    )


def draw_chained(seed: int, formats: LakeFormat) -> Plan:
    """Return the plan of a seed in which the threads of few clients read the rows they change."""
    source = random.Random(f"{seed}/chained")
    plan = draw_hot(seed, formats)
    return replace(
        plan,
        combined=False,
        chained=True,
        kinds=(
            "lists",
            "lists",
            "raises",
            *source.sample(("transfer", "skew", "snapshot", "take"), 2),
        ),
        levels=(SERIALIZABLE,),
    )


def draw_refreshed(seed: int, formats: LakeFormat, kind: str = "refresh") -> Plan:
    """Return the plan of a seed with tables that are overwritten whole, while most files stay.

    With ``kind="redefine"`` they are redefined.

    Only transactions whose commits are HEAD's overwrite: rows that are added to a table's log after
    an overwrite was decided, and before it is published, are lost if it must be redone.
    """
    source = random.Random(f"{seed}/refreshed")
    plan = draw_formats(seed, formats)
    return replace(
        plan,
        features=tuple(f for f in plan.features if Feature.I in f) or (Feature.R | Feature.I,),
        foreign=("optimize", "checkpoint") if source.random() < 0.6 else (),
        kinds=(kind, kind, *source.sample(_BESIDE, 3), "optimize"),
    )


def draw_version_3(seed: int) -> Plan:
    """Return the plan of a seed with tables of Iceberg's version 3, whose rows have ids."""
    source = random.Random(f"{seed}/version3")
    plan = draw_formats(seed, "iceberg")
    usual = tuple(kind for kind in plan.foreign if kind not in _HARSH)
    more = source.sample(("upgrade", "beside", "checkpoint", "append", "rewrite"), 3)
    return replace(plan, version=3, foreign=(*usual, *more), short=source.random() < 0.6)


def draw_formats(seed: int, formats: LakeFormat) -> Plan:
    """Return the plan of a seed with another format of its tables."""
    return replace(draw(seed), formats=formats)


def _with_everyone(plan: Plan, source: random.Random) -> Plan:
    levels = (*_LEVELS, (SERIALIZABLE,), (SERIALIZABLE,))
    return replace(
        plan,
        features=EVERYONE,
        foreign=plan.foreign or tuple(source.sample(_FOREIGN, source.randint(1, 3))),
        levels=source.choice(levels),
        clients=max(3, plan.clients),
        transactions=max(3, plan.transactions),
        attempts=5,
    )


def _hasty(settings: Settings, source: random.Random) -> Settings:
    """Return leases and time-outs so short that they sometimes end in the middle of the work."""
    return replace(
        settings,
        lease_seconds=source.choice((2.0, 5.0, 12.0, 30.0)),
        wait_timeout_seconds=source.choice((0.0, 1.0, 5.0, 20.0, 100.0, 300.0)),
        escalate_after=source.choice((1, 1, 2, 3)),
    )


@contextmanager
def small_limits(
    short: bool,
    *,
    crowded: bool = False,
    whole: bool = False,
    hot: bool = False,
    window: int = proposal.WINDOW,
) -> Iterator[None]:
    """Use pages of three commits, tails of two entries, and leaves of one to three tables.

    A LIST of a log begins two versions before a known one, and two bases are copied together. So a
    short history outgrows them.
    ``crowded``: one client is a crowd. ``whole``: maps stay in HEAD. ``hot``: all tables are hot.
    ``window``: so many replacements of HEAD may include a proposal.
    """
    before = head.PAGE_LENGTH, head.COMMITS_IN_HEAD, head.PAGES_IN_BLOCK, tail._KEPT
    bytes_of_maps = leaves.INLINE_BYTES, leaves.LEAF_BYTES
    together = bases.COPIED_TOGETHER
    crowd, listed = (group.CROWD, group.DOUBTFUL_SECONDS), log._BEFORE
    if crowded:
        group.CROWD, group.DOUBTFUL_SECONDS = 0, 0.0
    cold, lasts = combine.COLD, proposal.WINDOW
    proposal.WINDOW = window
    if hot:
        combine.COLD = float("inf")
    if short:
        head.PAGE_LENGTH, head.COMMITS_IN_HEAD, head.PAGES_IN_BLOCK, tail._KEPT = 3, 6, 2, 2
        log._BEFORE, bases.COPIED_TOGETHER = 2, 2
    if short and not whole:
        leaves.INLINE_BYTES, leaves.LEAF_BYTES = 200, 300
    try:
        yield
    finally:
        head.PAGE_LENGTH, head.COMMITS_IN_HEAD, head.PAGES_IN_BLOCK, tail._KEPT = before
        leaves.INLINE_BYTES, leaves.LEAF_BYTES = bytes_of_maps
        bases.COPIED_TOGETHER = together
        combine.COLD, proposal.WINDOW = cold, lasts
        (group.CROWD, group.DOUBTFUL_SECONDS), log._BEFORE = crowd, listed
