"""The layers of a campaign, each with its share of the time.

A layer is a module of this folder with a function ``run(turn)``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Layer:
    """A layer of the campaign, in the module of its name."""

    name: str
    #: How much time it gets beside the others.
    share: int
    #: What it searches, in one line of the report.
    searches: str


LAYERS = (
    Layer("histories", 5, "histories of the protocol under faults, in simulated time"),
    Layer("lists", 2, "short histories on few rows, judged by the checker of isolation"),
    Layer("porcupine", 1, "histories of simulated and real processes, judged by Porcupine"),
    Layer("models", 1, "runs of the models, and runs that real clients follow step by step"),
    Layer("schedules", 3, "crashes at each request, and interleavings, of small scenarios"),
    Layer("kills", 2, "real processes that are killed and stopped"),
    Layer("rows", 2, "drawn tables, predicates and programs, against a model"),
    Layer("kills_of_upkeep", 2, "clients that die between two writes of upkeep and other verbs"),
    Layer("stops", 1, "real processes that are stopped past their leases, and go on"),
    Layer("damage", 3, "lakes whose objects are lost or set back, under clients and upkeep"),
    Layer("hostile", 2, "lakes of which one object names files beyond it, or holds code"),
    Layer("secrets", 1, "clients with secrets, on stores that refuse them and repeat these"),
    Layer("lives", 3, "drawn lakes with refs, keys, upkeep and losses, beside a model"),
    Layer("backups", 1, "drawn lakes, backed up beside other clients, damaged and restored"),
    Layer("differential", 4, "programs of verbs beside other clients, against an oracle"),
    Layer("differential_sql", 3, "SQL transactions at once, against DuckDB in their serial order"),
    Layer("differential_spark", 1, "the same on the Spark engine, beside Spark"),
    Layer("fuzz_store", 3, "damaged objects of each kind: read whole, or refused by name"),
    Layer("fuzz_sql", 2, "drawn SQL, predicates, names and paths: run, or refused by LakeVilla"),
    Layer("fuzz_guided", 3, "inputs that coverage guides: a corpus for each parser and call"),
    Layer("leaks", 2, "transactions in one process: threads, files and memory stay as they are"),
    Layer("contracts", 3, "what users rely on, over real tables of both formats"),
    Layer("store_faults", 3, "stores, networks and disks that break at any request or call"),
)
