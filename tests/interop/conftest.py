"""Peers as fixtures, and the table that a whole run writes.

Tests say how a cell went through `record_property`, so that it reaches the process that writes, whichever ran them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from interop import field, frameworks, table
from interop.mcp_servers import field as mcp_field

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "interop.md"
PROPERTY = "interop cell"
MCP_PROPERTY = "interop MCP server"
TRANSPORT_TITLES = {"jsonrpc": "JSON-RPC", "rest": "REST", "grpc": "gRPC"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-table", action="store_true", help="write docs/interop.md from what this run saw")


def pytest_configure(config: pytest.Config) -> None:
    # With xdist it is the process that runs no tests which hears of all of them.
    # Without the folder on the command line this file is loaded too late to have an option.
    if config.getoption("--write-table", default=False) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Table(), "interop-table")


class Table:
    """Collects the cells, and writes the page when nothing is missing."""

    def __init__(self) -> None:
        self.cells: list[Any] = []
        self.mcp_servers: list[Any] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == PROPERTY and report.when == "call":
                assert isinstance(value, dict)
                self.cells.append(table.Cell(**value))
            elif name == MCP_PROPERTY and report.when == "call":
                assert isinstance(value, dict)
                self.mcp_servers.append(table.Compared(**value))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        rows = [
            table.Row(direction, str(peer), str(wire), f"{peer.name} {peer.version}, {title_of(wire)}")
            for direction in table.DIRECTIONS
            for peer in field.PEERS
            for wire in (peer.server_wires if direction == table.OURS else peer.client_wires)
        ]
        rows += [
            *(
                table.Row(table.ADK_THEIRS, str(adk), field.ADK_CLIENT, f"google-adk {adk.version}")
                for adk in field.ADKS
            ),
            *(
                table.Row(table.ADK_OURS, str(field.ADK), path, f"google-adk {field.ADK.version}, {title}")
                for path, title in field.ADK_SERVERS.items()
            ),
        ]
        rows += [
            table.Row(direction, str(framework), "", framework.row)
            for direction, sides in (
                (table.FRAMEWORKS_OURS, frameworks.SERVERS),
                (table.FRAMEWORKS_THEIRS, frameworks.CLIENTS),
            )
            for framework in sides
        ]
        servers = [compared(server) for server in mcp_field.SERVERS]
        missing = table.unfilled(rows, self.cells) + table.not_compared(servers, self.mcp_servers)
        if missing:
            terminalreporter.write_line(f"docs/interop.md stays as it is: {len(missing)} cells were not tried")
            for line in missing:
                terminalreporter.write_line(f"  {line}")
            return
        peers = (*field.PEERS, *field.ADKS, *(framework.peer for framework in frameworks.FRAMEWORKS))
        versions = [(peer.name, peer.version) for peer in peers]
        PAGE.write_text(table.page(rows, self.cells, versions, table.in_order(servers, self.mcp_servers)))
        terminalreporter.write_line("docs/interop.md is written")


def compared(server: Any, tools: int = 0, calls: int = 0) -> Any:
    return table.Compared(server.name, server.version, server.way, tools, calls)


def title_of(wire: Any) -> str:
    return f"{TRANSPORT_TITLES[wire.transport]} {wire.protocol}"


@pytest.fixture
def record(record_property: Callable[[str, object], None]) -> Callable[[Any], None]:
    """Put a cell into the table."""
    return lambda cell: record_property(PROPERTY, cell.plain())


@pytest.fixture
def trying(record: Callable[[Any], None]) -> Callable[..., Any]:
    """Put a cell of ADK into the table: how the block went, or what the peer does instead, as the block has shown."""

    @contextmanager
    def tried(
        direction: str, wire: str, operation: str, found: str = table.PASS, why: str = "", peer: Any = field.ADK
    ) -> Generator[None]:
        try:
            yield
        except BaseException as error:
            record(table.Cell(direction, str(peer), wire, operation, table.FAIL, str(error)))
            raise
        record(table.Cell(direction, str(peer), wire, operation, found, why))

    return tried


@pytest.fixture
def record_mcp(record_property: Callable[[str, object], None]) -> Callable[[Any, int, int], None]:
    """Put an MCP server into the table: how many of its tools were compared, in how many calls."""
    return lambda server, tools, calls: record_property(MCP_PROPERTY, compared(server, tools, calls).plain())


@pytest.fixture(scope="session")
def server_of() -> Iterator[Callable[[Any], str]]:
    """The base URL of a peer's server, which starts when it is first asked for and stops at the end."""
    urls: dict[str, str] = {}
    with ExitStack() as running:

        def url_of(peer: Any) -> str:
            if peer.missing:
                pytest.skip(peer.missing)
            if peer.folder not in urls:
                urls[peer.folder] = running.enter_context(field.serving(peer))
            return urls[peer.folder]

        yield url_of
