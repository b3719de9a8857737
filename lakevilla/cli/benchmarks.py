"""The command that runs the benchmarks, which only a source checkout has."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import typer

import lakevilla
from lakevilla.cli.command import ERROR, app
from lakevilla.cli.output import Output
from lakevilla.cli.purposes import purpose_of


@app.command(
    add_help_option=False,
    rich_help_panel=purpose_of("bench"),
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def bench(context: typer.Context) -> None:
    """Run the benchmarks, in a checkout: list, run, report, cost, compare."""
    checkout = Path(lakevilla.__file__).resolve().parent.parent
    if not (checkout / "bench" / "command.py").exists():
        _refuse(
            "the benchmarks are in the repository and not in an installed package: in a checkout, "
            "`pip install -e '.[bench]'` and call `lakevilla bench` there"
        )
    if str(checkout) not in sys.path:
        sys.path.insert(0, str(checkout))
    try:
        main = importlib.import_module("bench.command").main
    except ImportError as error:
        _refuse(
            f"the benchmarks need {error.name or error}, which is not installed here: "
            "`pip install -e '.[bench]'` in the checkout"
        )
    raise typer.Exit(main(context.args or ["--help"]))


def _refuse(why: str) -> None:
    Output(False).errors.print(f"error: {why}", soft_wrap=True, markup=False, highlight=False)
    raise typer.Exit(ERROR)
