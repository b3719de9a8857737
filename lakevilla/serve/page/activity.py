"""The views of what goes on now: open transactions and their waits, upkeep, and the doctor."""

from __future__ import annotations

from lakevilla.maintenance.upkeep.maintain import look_at_upkeep
from lakevilla.serve.page.history import described
from lakevilla.serve.page.shown import Body, Params, Shown
from lakevilla.serve.page.waits import MOST, wait_graph

#: The page of activity has so many of the newest commits.
_COMMITS = 10
#: A page loads itself again after so many seconds, and no sooner.
_LEAST_SECONDS, _MOST_SECONDS = 2, 3600
#: The page of the doctor has so many findings.
_FINDINGS = 200


def activity(shown: Shown, params: Params) -> Body:
    """Show the open transactions, who waits for whom, and the newest commits."""
    transactions = shown.lake.transactions()
    head = shown.lake._client.head()
    every = params.number("every")
    return Body(
        "activity.html",
        "Activity",
        {
            "transactions": transactions[:MOST],
            "others": max(len(transactions) - MOST, 0),
            "numbers": {one.id: at for at, one in enumerate(transactions[:MOST], 1)},
            "waits": wait_graph(transactions),
            "lease": shown.main.settings.lease_seconds,
            "reserved": () if head is None else head.reserved,
            "commits": [(one, described(one)) for one in shown.lake.history(_COMMITS)],
            "every": None if every is None else min(max(every, _LEAST_SECONDS), _MOST_SECONDS),
        },
    )


def upkeep(shown: Shown, params: Params) -> Body:
    """Show what upkeep was done; with ``run``, also what the doctor finds now.

    The doctor looks at each table, so it is asked for by a person, and never by a link.
    """
    main = shown.main
    report = main.doctor() if params.text("run") and not params.from_elsewhere else None
    head = main._client.head()
    done = () if head is None else main._client.run(look_at_upkeep())
    return Body(
        "upkeep.html",
        "Upkeep",
        {
            "done": [one.message for one in done],
            "report": report,
            "findings": () if report is None else report.findings[:_FINDINGS],
        },
    )
