"""A run on a branch: what is merged, and what a failure, a death or another run leaves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FAILING = {"tests/none.sql": "select * from {{ ref('stock') }} where qty > 0"}
DYING = """
import os
import signal

def model(dbt, session):
    dbt.ref("stock")
    os.kill(os.getpid(), signal.SIGKILL)
    return session.sql("select 1 as one")
"""
#: A model that runs dbt once more before it ends.
MEANWHILE = """
import subprocess

def model(dbt, session):
    dbt.ref("stock")
    done = subprocess.run(COMMAND, capture_output=True, text=True)
    return session.sql("select $1 as code, $2 as said", params=[done.returncode, done.stdout])
"""
FEW = """
{{ config(materialized='view') }}
select * from {{ ref('within') }} where qty < 2
"""


def branches(project) -> list[str]:
    return [ref.name for ref in project.lake.refs("branch")]


def a_second_run_within_the_first(project, select: str) -> None:
    """Write a model that runs ``dbt build`` of another model while the first run goes on."""
    project.write({"models/other.sql": "select 1 as one"})
    apart = ["--target-path", str(project.directory / "apart"), "--select", select]
    command = [str(Path(sys.executable).with_name("dbt")), "build", *project.places, *apart]
    project.write({"models/meanwhile.py": MEANWHILE.replace("COMMAND", repr(command))})


def test_a_run_that_passes_is_one_version_of_the_lake(shop) -> None:
    shop.target(lakevilla_branch="run")
    within = "{{ config(materialized='ephemeral') }} select * from {{ ref('stock') }}"
    shop.write({"models/within.sql": within, "models/few.sql": FEW})
    shop.build()
    assert [entry.version for entry in shop.lake.history()] == [1]
    assert shop.rows("select * from shop.few") == [("jam", 1)]
    assert branches(shop) == []


def test_a_run_that_an_except_block_calls_is_merged_too(shop) -> None:
    shop.target(lakevilla_branch="run")
    try:
        raise OSError("no download today")
    except OSError:
        shop.build()
    assert sorted(shop.rows("select sku from shop.stock")) == [("jam",), ("tea",)]
    assert branches(shop) == []


def test_a_run_with_a_failing_test_leaves_the_lake_and_names_its_branch(shop) -> None:
    shop.build()
    before = shop.lake.history()[0].version
    shop.target(lakevilla_branch="run")
    shop.write({"models/stock.sql": "select 'new' as sku, 1 as qty", **FAILING})
    assert not shop.dbt("build").success
    assert shop.lake.history()[0].version == before
    assert sorted(shop.rows("select sku from shop.stock")) == [("jam",), ("tea",)]
    (left,) = branches(shop)
    assert shop.lake.on(left).read("shop/stock")["sku"].to_pylist() == ["new"]
    shop.lake.delete_ref(left)

    command = [str(Path(sys.executable).with_name("dbt")), "--quiet", "build", *shop.places]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 1
    (left,) = branches(shop)
    assert f"branch {left} is not merged" in told.stdout

    (shop.directory / "tests/none.sql").unlink()
    shop.build()
    warning = "failed, was killed, or is still going on"
    assert any(left in line and warning in line for line in shop.said)
    assert shop.rows("select sku from shop.stock") == [("new",)]
    assert branches(shop) == [left]


def test_a_run_that_is_killed_before_its_merge_leaves_the_lake_unchanged(shop) -> None:
    shop.build()
    before = shop.lake.history()[0].version
    shop.target(lakevilla_branch="run")
    shop.write({"models/stock.sql": "select 'new' as sku, 1 as qty", "models/last.py": DYING})
    command = [str(Path(sys.executable).with_name("dbt")), "build", *shop.places]
    assert subprocess.run(command, capture_output=True, check=False).returncode == -9
    assert shop.lake.history()[0].version == before
    (left,) = branches(shop)
    assert shop.lake.on(left).read("shop/stock")["sku"].to_pylist() == ["new"]


def test_a_failing_hook_at_the_end_keeps_the_run_from_its_merge(shop) -> None:
    shop.target(lakevilla_branch="run")
    shop.write({"macros/hook.sql": "{% macro hook() %}select * from shop.not_there{% endmacro %}"})
    shop.configure(**{"on-run-end": "{{ hook() }}"})
    assert not shop.dbt("build").success
    assert shop.lake.history() == []
    assert len(branches(shop)) == 1


def test_a_hook_that_does_not_compile_keeps_the_run_from_its_merge(shop) -> None:
    shop.target(lakevilla_branch="run")
    hook = "{% if execute %}{{ exceptions.raise_compiler_error('no') }}{% endif %}"
    shop.configure(**{"on-run-end": hook})
    assert not shop.dbt("build").success
    assert shop.lake.history() == []
    assert len(branches(shop)) == 1


def test_a_run_whose_tables_others_have_changed_is_not_merged_and_says_so(shop) -> None:
    shop.build()
    results = shop.directory / "target" / "run_results.json"
    of_the_run_before = results.read_bytes()
    shop.target(lakevilla_branch="run")
    write = f"""
import lakevilla as lv

def model(dbt, session):
    dbt.ref("stock")
    lake = lv.connect({shop.root!r})
    lake.run(lambda txn: txn.append("shop/stock", [{{"sku": "gin", "qty": 9}}]))
    return session.sql("select 1 as done")
"""
    shop.write({"models/other.py": write})
    done = shop.dbt("build")
    assert not done.success
    assert "everything passed, but branch dbt-" in str(done.exception)
    assert "what this run has built, shop/stock, since it began" in str(done.exception)
    assert "Run dbt build again" in str(done.exception)
    assert "lakevilla merge" not in str(done.exception), "it would be refused again"
    assert ("gin", 9) in shop.rows("select sku, qty from shop.stock")
    assert "shop/other" not in shop.lake
    assert len(branches(shop)) == 1
    assert results.read_bytes() == of_the_run_before


def test_a_second_run_on_a_name_is_refused_while_the_branch_is_there(shop) -> None:
    shop.build()
    before = shop.lake.history()[0].version
    shop.target(lakevilla_branch="nightly")
    shop.lake.branch("nightly")
    done = shop.dbt("build")
    assert not done.success
    assert "branch nightly is there already" in str(done.exception)
    assert shop.lake.history()[0].version == before
    shop.lake.delete_ref("nightly")
    shop.build()
    assert branches(shop) == []


def test_a_second_run_on_a_name_is_refused_while_the_first_goes_on(shop) -> None:
    shop.target(lakevilla_branch="nightly")
    a_second_run_within_the_first(shop, "other")
    shop.build("--exclude", "other")
    ((code, said),) = shop.rows("select code, said from shop.meanwhile")
    assert code == 2
    assert "branch nightly is there already" in said
    assert "shop/other" not in shop.lake
    assert branches(shop) == []


def test_two_runs_at_once_that_build_different_tables_are_both_merged(shop) -> None:
    shop.target(lakevilla_branch="run")
    a_second_run_within_the_first(shop, "other")
    shop.build("--exclude", "other")
    ((code, said),) = shop.rows("select code, said from shop.meanwhile")
    assert (code, "was merged into the lake: version 1" in said) == (0, True)
    assert shop.rows("select one from shop.other") == [(1,)]
    assert [entry.version for entry in shop.lake.history()] == [2, 1]
    assert branches(shop) == []


def test_of_two_runs_at_once_that_build_one_table_the_one_that_ends_first_is_merged(shop) -> None:
    shop.build()
    shop.target(lakevilla_branch="run")
    before = shop.lake.history()[0].version
    a_second_run_within_the_first(shop, "stock")
    done = shop.dbt("build", "--exclude", "other")
    assert "shop/stock" in str(done.exception)
    assert "shop/meanwhile" not in shop.lake
    assert shop.lake.history()[0].version == before + 1
    (left,) = branches(shop)
    assert shop.lake.on(left).read("shop/meanwhile")["code"].to_pylist() == [0]


def test_dbt_retry_is_refused_where_runs_have_branches(shop) -> None:
    shop.target(lakevilla_branch="run")
    shop.write(FAILING)
    assert not shop.dbt("build").success
    done = shop.dbt("retry")
    assert not done.success
    assert "use dbt build" in str(done.exception)


def test_tests_and_docs_read_the_lake_itself_and_make_no_branch(shop) -> None:
    shop.build()
    shop.target(lakevilla_branch="run")
    shop.write({"tests/some.sql": "select * from {{ ref('stock') }} where qty > 100"})
    for command in ("test", "docs generate", "compile"):
        assert shop.dbt(command).success
    assert branches(shop) == []


def test_a_branch_that_is_named_is_read_and_written_instead_of_the_lake(shop) -> None:
    shop.build()
    shop.lake.branch("dev")
    shop.target(branch="dev")
    shop.write({"models/stock.sql": "select 'new' as sku, 1 as qty"})
    shop.build()
    assert shop.lake.on("dev").read("shop/stock")["sku"].to_pylist() == ["new"]
    assert len(shop.rows("select * from shop.stock")) == 2


def test_a_target_that_can_not_be_is_refused(shop) -> None:
    for options, message in [
        ({"branch": "dev", "lakevilla_branch": "run"}, "leave out branch or lakevilla_branch"),
        ({"isolation": "chaos"}, "choose one of serializable"),
        ({"database": "other"}, "leave database out"),
        ({"lakevilla_brnach": "run"}, "did you mean lakevilla_branch?"),
        ({"path": "dev"}, "has no 'path': choose among"),
        (
            {"settings": {"retry_limt": 1}},
            "settings has no 'retry_limt'; did you mean retry_limit?",
        ),
    ]:
        shop.target(**options)
        assert message in str(shop.dbt("build").exception)
