"""Play histories in which HEAD lists leaves, and each commit rewrites the leaves that
it changes.
"""

from collections import Counter
from dataclasses import replace

from lakevilla.global_log.head import Head
from lakevilla.global_log.head_log import is_head
from lakevilla.global_log.leaves import LEAVES_PREFIX, LeafMark, is_mark
from lakevilla.global_log.repo import load_head
from lakevilla.maintenance.gc.garbage import unreferenced_leaves
from lakevilla.maintenance.gc.listing import Listing
from lakevilla.settings import Settings
from lakevilla.store.base import ABSENT
from lakevilla.store.codec import FORMAT, decode, encode
from lakevilla.store.effects import put
from lakevilla_testing.histories import campaign
from lakevilla_testing.histories.attempts import context_of
from lakevilla_testing.histories.plan import draw, small_limits
from lakevilla_testing.planted.every import PLANTED
from lakevilla_testing.tables.reader import run_now
from tests.support.search import WHOLE, how_many
from tests.support.simulated.commits import Process, balances, lake, transfer

HISTORIES = how_many(1, whole=24)


def test_every_invariant_holds_where_head_lists_leaves():
    seen = Counter()
    for seed in range(HISTORIES):
        plan = replace(draw(seed), short=True, whole=False, collects=seed % 2 == 0)
        if seed % 4 == 0:
            plan = replace(plan, settings=Settings(max_age_seconds=60.0))
        outcome, _, error = campaign.replay(seed, plan=plan)
        assert error is None, f"seed {seed} as this test draws it: {error} ({plan})"
        widths, named = set(), set()
        for mutation in outcome.store.journal:
            if is_head(mutation.key) and mutation.after is not None:
                refs = decode(mutation.key, mutation.after.body, Head).tables.refs
                widths.add(len(refs))
                named |= {ref.key for ref in refs}
            elif mutation.key.startswith(LEAVES_PREFIX) and mutation.after is None:
                seen["deleted"] += 1
            elif mutation.key.startswith(LEAVES_PREFIX) and not is_mark(mutation.key):
                seen["stored"] += 1
        seen["histories with leaves"] += max(widths, default=0) > 0
        seen["histories that cut a leaf"] += len(widths - {0}) > 1
        seen["named"] += len(named)
    if WHOLE:
        assert seen["histories with leaves"] > HISTORIES // 2, seen
        assert seen["histories that cut a leaf"] > 2, seen
        assert seen["stored"] > seen["named"], "some were stored for a HEAD that lost its race"
        assert seen["deleted"] > 0, seen


def doomed_while_a_head_is_on_its_way():
    """Return what gc would delete just after a writer has stored its leaves, by a gc mark of long
    ago.
    """
    with small_limits(True):
        simulation = lake()
        writer = Process(simulation, transfer).until("HEAD.json")
        context = context_of(writer.client)
        store = simulation.store
        head = run_now(store, load_head()).head
        named = tuple(ref.key for ref in head.tables.refs)
        assert named, "else there are no leaves"
        long_ago = context.now_ms() - int(context.settings.max_age_seconds * 2000)
        mark = LeafMark(FORMAT, "0", head.replacement, long_ago, named)
        run_now(store, put(mark.key, encode(mark), ABSENT))
        now = context.now_ms() / 1000
        leaves = {info.key: info.modified_seconds for info in store.list(LEAVES_PREFIX)}
        listed = Listing(now, head.sequence, {}, leaves={**leaves, mark.key: long_ago / 1000})
        doomed = run_now(store, unreferenced_leaves(context, head, named, listed, dry_run=False))
        writer.finish()
        newer = run_now(store, load_head()).head
        assert balances(simulation)["a"][0] == 99
        return {ref.key for ref in newer.tables.refs}.intersection(doomed)


def test_a_leaf_is_kept_while_the_head_that_names_it_is_not_yet_stored():
    assert not doomed_while_a_head_is_on_its_way()
    with PLANTED["leaf_deleted_before_its_head"].plant():
        assert doomed_while_a_head_is_on_its_way(), "the planted bug shows"
