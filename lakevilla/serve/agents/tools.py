"""The tools of the Model Context Protocol that an agent is given.

This module alone knows the package ``mcp``. A tool's description, and those of its arguments, are
all that an agent knows of the lake before it asks.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from pydantic import Field
from starlette.applications import Starlette

from lakevilla import __version__
from lakevilla.errors import LakeVillaError
from lakevilla.serve.agents.answers import Answer
from lakevilla.serve.agents.reader import COMMITS
from lakevilla.serve.agents.session import Given
from lakevilla.serve.agents.words import for_agents
from lakevilla.serve.agents.workers import Workers

Tool = Callable[..., Answer]
Table = Annotated[str, Field(description="A table's name, as list_tables gives it: sales/orders.")]
AnyTable = Annotated[
    str,
    Field(description="A table: its rows that differ. Empty: the tables that differ, with counts."),
]
State = Annotated[
    str,
    Field(
        description="A branch, a tag, a version as in v57, or a branch's version as in etl@57. "
        "Empty for the present state: of the session's branch, if it has one, else of the lake, "
        "which is called main."
    ),
]
KeyColumns = Annotated[
    list[str],
    Field(
        description="Columns that identify the table's rows: then a changed row comes as "
        "update_preimage and update_postimage, and not as a delete and an insert."
    ),
]
Keys = Annotated[
    dict[str, list[str]],
    Field(
        description="By table, the columns that identify its rows. Then only a row that both the "
        "branch and the lake have changed is a conflict."
    ),
]
Query = Annotated[
    str,
    Field(
        description="One statement in DuckDB's dialect: SELECT, WITH, FROM, SHOW TABLES, DESCRIBE "
        "name, EXPLAIN. A table sales/orders is sales.orders. Past states: FROM stock AT (VERSION "
        "=> 57), AT (BRANCH => etl); changed rows: table_changes('stock', 3, 7). What the lake "
        "knows of itself: lakevilla_tables, lakevilla_columns, lakevilla_commits, lakevilla_refs."
    ),
]
Statements = Annotated[
    str,
    Field(
        description="Statements with semicolons between them: INSERT, UPDATE, DELETE, MERGE INTO, "
        "CREATE TABLE, CREATE VIEW, ALTER TABLE, DROP. They take effect together, or not at all."
    ),
]

_READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_WRITES = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
_ENDS = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)

_READING = (
    "Tables of a data lake with versions, tags and branches. Begin with list_tables and describe. "
    "An answer has at most {rows} rows, and says if there are more; a statement ends after "
    "{seconds:g} seconds. So aggregate in SQL, and read few rows."
)
_WRITING = (
    " execute changes tables on a branch of this session alone: nobody else sees it, and query "
    "reads that branch from then on. changes shows what was done. {merging} discard ends the "
    "branch with all changes."
)
_MERGES = "merge brings them to everybody, if these checks are true of the result: {checks}."
_NO_MERGES = "merge is refused, as the operator gave no checks: say which branch is to be merged."


def server_of(workers: Workers) -> MCPServer[Any]:
    """Return the server of a session, whose tools processes of its own run."""
    given = workers.given
    server: MCPServer[Any] = MCPServer(
        "lakevilla",
        title="LakeVilla",
        version=__version__,
        instructions=_instructions(given),
        log_level="WARNING",
        subscriptions=False,
    )
    _add_reading(server, workers.call)
    if given.checks is not None:
        _add_writing(server, workers.call)
    return server


def http_app(server: MCPServer[Any], path: str) -> Starlette:
    """Return the application that answers a server's requests over HTTP, each by itself.

    Whoever mounts it decides which requests it gets.
    """
    app: Starlette = server.streamable_http_app(
        streamable_http_path=path,
        json_response=True,
        stateless_http=True,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    return app


def _instructions(given: Given) -> str:
    limits = given.limits
    text = _READING.format(rows=limits.rows, seconds=limits.seconds)
    if given.checks is None:
        return f"{text} Nothing can be changed."
    checks = "; ".join(f"{name}: {sql}" for name, sql in given.checks.items())
    merging = _MERGES.format(checks=checks) if given.checks else _NO_MERGES
    return text + _WRITING.format(merging=merging)


def _add_reading(server: MCPServer[Any], call: Tool) -> None:
    def list_tables(
        prefix: Annotated[str, Field(description="The beginning of their names.")] = "",
        ref: State = "",
    ) -> Answer:
        """List tables and views, with their sizes."""
        return call("list_tables", prefix, ref)

    def describe(table: Table, ref: State = "") -> Answer:
        """Describe a table or view: its columns, types, comments and format."""
        return call("describe", table, ref)

    def query(sql: Query, ref: State = "") -> Answer:
        """Run one statement that reads, over all tables of one state."""
        return call("query", sql, ref)

    def history(
        limit: Annotated[int, Field(description="The most commits to list.")] = COMMITS,
        until: Annotated[
            int | None, Field(description="The newest version to list, to go on from a page.")
        ] = None,
        ref: State = "",
    ) -> Answer:
        """List commits, newest first: when, which tables, and which operations."""
        return call("history", limit, until, ref)

    def diff(
        old: State, new: State = "main", table: AnyTable = "", keys: KeyColumns | None = None
    ) -> Answer:
        """Compare two states of the lake: the tables, or the rows of one table."""
        return call("diff", old or "main", new or "main", table, keys or [])

    def list_branches() -> Answer:
        """List branches, tags and clones."""
        return call("list_branches")

    tools: list[Tool] = [list_tables, describe, query, history, diff, list_branches]
    for tool in tools:
        _add(server, tool, _READS)


def _add_writing(server: MCPServer[Any], call: Tool) -> None:
    def execute(sql: Statements) -> Answer:
        """Change tables on this session's branch, which the first call begins."""
        return call("execute", sql)

    def changes(table: AnyTable = "", keys: KeyColumns | None = None) -> Answer:
        """Show what this session's branch has changed since it began, or was last merged."""
        return call("changes", table, keys or [])

    def merge(keys: Keys | None = None) -> Answer:
        """Bring the branch's changes to everybody, if the operator's checks are true of the result.

        If a check fails, or the lake has changed the same rows, nothing is merged.
        """
        return call("merge", keys or {})

    def rebase(keys: Keys | None = None) -> Answer:
        """Bring to the branch what others have committed to the lake since it began."""
        return call("rebase", keys or {})

    def discard() -> Answer:
        """End this session's branch with all that was changed on it; the lake stays as it is."""
        return call("discard")

    _add(server, changes, _READS)
    _add(server, execute, _WRITES)
    _add(server, rebase, _WRITES)
    _add(server, merge, _ENDS)
    _add(server, discard, _ENDS)


def _add(server: MCPServer[Any], tool: Tool, kind: ToolAnnotations) -> None:
    """Add a tool: its answer is JSON without spaces, which cost an agent as much as words."""

    @wraps(tool)
    def call(*args: Any, **kwargs: Any) -> CallToolResult:
        try:
            answer = tool(*args, **kwargs)
        except LakeVillaError as error:
            raise ToolError(for_agents(error.message)) from error
        text = json.dumps(answer, ensure_ascii=False, separators=(",", ":"))
        return CallToolResult(
            content=[TextContent(type="text", text=text)], structured_content=answer
        )

    call.__annotations__ = {**tool.__annotations__, "return": CallToolResult}
    server.add_tool(call, description=inspect.getdoc(tool), annotations=kind)
