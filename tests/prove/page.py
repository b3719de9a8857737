"""The report of a campaign: one HTML page, with its plots within."""

from __future__ import annotations

import io
import os
import platform
import time
from collections import Counter
from collections.abc import Sequence
from html import escape

import matplotlib as mpl
from matplotlib.figure import Figure

from tests.prove.campaign import Ended, Total, total
from tests.prove.layers import Layer

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 66rem; padding: 0 1rem }
table { border-collapse: collapse; font-size: 13px; margin: 1rem 0 }
th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid #ddd }
th:first-child, td:first-child, .text { text-align: left }
svg { max-width: 100%; height: auto }
pre { white-space: pre-wrap; background: #f4f4f4; padding: 1rem }
.bad { color: #b00020; font-weight: 600 } .wide { overflow-x: auto }
"""


def page(layers: Sequence[Layer], turns: Sequence[Ended], python: str) -> str:
    """Return the page. Each number in it is the sum over the turns of the campaign."""
    totals = {layer: total(turns, layer.name) for layer in layers}
    failed = sum(len(done.failures) for done in totals.values())
    verdict = f"<p class=bad>{failed} failures</p>" if failed else "<p>No layer has failed.</p>"
    idle = [layer.name for layer, done in totals.items() if not (done.searched or done.left_out)]
    if idle:
        verdict += f"<p class=bad>Nothing was searched yet by: {', '.join(idle)}.</p>"
    sections = "\n".join(_section(layer, done) for layer, done in totals.items())
    return (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width'>"
        f"<title>LakeVilla: the campaign</title><style>{_STYLE}</style>"
        f"<h1>What the campaign has searched</h1>{_when(turns, python)}{verdict}"
        f"{_summary(totals)}{_plot(_minutes(totals))}{_faults(totals)}{sections}</html>\n"
    )


def _when(turns: Sequence[Ended], python: str) -> str:
    if not turns:
        return "<p>No turn has ended yet.</p>"
    hours: Counter[str] = Counter()
    for turn in turns:
        hours[turn.commit] += round(turn.seconds)
    commits = ", ".join(f"{commit}: {took / 3600:.1f}" for commit, took in hours.items())
    first, last = (
        time.strftime("%Y-%m-%d %H:%M", time.gmtime(when))
        for when in (turns[0].when - turns[0].seconds, turns[-1].when)
    )
    machine = f"{os.cpu_count()} processors, {platform.system()} {platform.machine()}"
    return (
        f"<p>From {first} to {last} UTC, on {escape(machine)}, Python {escape(python)}. "
        f"Hours of one processor, by commit: {escape(commits)}.</p>"
    )


def _summary(totals: dict[Layer, Total]) -> str:
    rows = "".join(
        f"<tr><td><a href='#{layer.name}'>{layer.name}</a><td class=text>{escape(layer.searches)}"
        f"<td>{done.seconds / 60:,.1f}<td>{done.turns}<td class=text>{_counts(done.searched)}"
        f"<td>{done.fired.total():,}<td{' class=bad' if done.failures else ''}>"
        f"{escape(done.left_out and 'left out') or len(done.failures)}</tr>"
        for layer, done in totals.items()
    )
    heads = ("layer", "searches", "minutes", "turns", "searched", "faults fired", "failures")
    head = "".join(
        f"<th{' class=text' if text in ('searches', 'searched') else ''}>{text}</th>"
        for text in heads
    )
    return f"<div class=wide><table><tr>{head}</tr>{rows}</table></div>"


def _counts(counts: Counter[str]) -> str:
    return "; ".join(f"{many:,} {escape(what)}" for what, many in sorted(counts.items()))


def _faults(totals: dict[Layer, Total]) -> str:
    fired: Counter[str] = Counter()
    for done in totals.values():
        # A scale of powers has no place for what has not fired.
        fired.update({name: many for name, many in done.fired.items() if many})
    if not fired:
        return ""
    names = [name for name, _ in fired.most_common()][::-1]
    made = Figure(figsize=(8, 1 + 0.24 * len(names)), layout="constrained")
    axes = made.subplots()
    drawn = axes.barh(names, [fired[name] for name in names], color="#0072B2")
    axes.bar_label(drawn, fmt="{:,.0f}", padding=3, fontsize=8)
    axes.set_xscale("log")
    axes.set_xlabel("times that it fired")
    axes.margins(x=0.15)
    axes.spines[["top", "right"]].set_visible(False)
    return f"<h2>Faults that fired, and what others did in between, by kind</h2>{_plot(made)}"


def _minutes(totals: dict[Layer, Total]) -> Figure:
    """Return a plot of the minutes that each layer has had."""
    made = Figure(figsize=(8, 1 + 0.24 * len(totals)), layout="constrained")
    axes = made.subplots()
    names = [layer.name for layer in totals][::-1]
    minutes = [done.seconds / 60 for done in totals.values()][::-1]
    axes.bar_label(axes.barh(names, minutes, color="#0072B2"), fmt="%.1f", padding=3, fontsize=8)
    axes.set_xlabel("minutes of the layer")
    axes.margins(x=0.1)
    axes.spines[["top", "right"]].set_visible(False)
    return made


def _section(layer: Layer, done: Total) -> str:
    # The kind first: "409" is a kind, too.
    kinds = "; ".join(f"{escape(kind)}: {many:,}" for kind, many in sorted(done.fired.items()))
    fired = f"<p>Faults: {kinds}.</p>" if done.fired else ""
    searched = f"<p>Searched: {_counts(done.searched) or 'nothing'}.</p>"
    reached = f"<p>Reached: {_counts(Counter(done.reached))}.</p>" if done.reached else ""
    left_out = f"<p>Left out: {escape(done.left_out)}.</p>" if done.left_out else ""
    failures = "".join(
        f"<p class=bad>Seed {one.seed}: <code>{escape(one.command)}</code></p>"
        f"<pre>{escape(one.text)}</pre>"
        for one in done.failures
    )
    seeds = f"<p>Seeds 0 to {done.next_seed - 1}.</p>" if done.next_seed else ""
    found = f"{searched}{reached}{fired}{seeds}{left_out}{failures}"
    return f"<h2 id='{layer.name}'>{layer.name}</h2>{found}"


def _plot(made: Figure) -> str:
    text = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "lakevilla"}):
        made.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue().partition("<svg")[1] + text.getvalue().partition("<svg")[2]
