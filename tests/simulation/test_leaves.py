"""Histories in which HEAD lists leaves, and each commit rewrites those that it touches."""

from collections import Counter
from dataclasses import replace

from lakevilla.global_log.head import Head
from lakevilla.global_log.heads import is_head
from lakevilla.global_log.leaves import LEAVES_PREFIX, is_mark
from lakevilla.settings import Settings
from lakevilla.sublogs.codec import decode
from lakevilla.testing import campaign
from lakevilla.testing.plan import draw

HISTORIES = 24


def test_histories_whose_head_lists_leaves_keep_every_promise():
    seen = Counter()
    for seed in range(HISTORIES):
        plan = replace(draw(seed), short=True, collects=seed % 2 == 0)
        if seed % 4 == 0:
            plan = replace(plan, settings=Settings(max_age_seconds=60.0))
        outcome, _, error = campaign.replay(seed, plan=plan)
        assert error is None, f"seed {seed}: {error} ({plan})"
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
    assert seen["histories with leaves"] > HISTORIES // 2, seen
    assert seen["histories that cut a leaf"] > 2, seen
    assert seen["stored"] > seen["named"], "some were stored for a HEAD that lost its race"
    assert seen["deleted"] > 0, seen
