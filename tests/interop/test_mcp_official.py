"""`dragoman mcp` under the official tools of MCP: the inspector, in strict mode, and the conformance suite."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from interop.agents import agent
from interop.mcp_servers.server import INSTALLED
from interop.mcp_sides import TOOLS
from support.server_process import ServerProcess

from dragoman.testing import served

FOLDER = INSTALLED / "mcp-tools"
PROGRAMS = FOLDER / "node_modules" / ".bin"
DRAGOMAN = Path(sys.executable).parent / "dragoman"
OLDEST_NODE = (22, 19)
START_SECONDS = 30
RUN_SECONDS = 120
ADDRESS = re.compile(r"serving MCP at (http://\S+)")


def missing() -> str:
    """Why the tools cannot be run; empty when they can."""
    if not (FOLDER / "ready").exists():
        return "no .peers/mcp-tools: run `make .peers/mcp-tools/ready`, which needs npm"
    # On Linux the peer brings a Node.js of its own, elsewhere it takes the one that is there.
    node = shutil.which("node", path=path())
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout if node else "none"
    found = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    return "" if found >= OLDEST_NODE else f"the inspector needs Node.js 22.19 or newer, here is {version.strip()}"


def path() -> str:
    return f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"


WHY_NOT = missing()
pytestmark = [pytest.mark.interop, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "they are there")]
BOTH_ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])


def run(here: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """One of the tools, in a folder of its own which is its home as well."""
    return subprocess.run(
        [PROGRAMS / program, *arguments],
        cwd=here,
        env={"PATH": path(), "HOME": str(here)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )


@contextmanager
def over_http(here: Path) -> Generator[str, None, None]:
    """`dragoman mcp --http` on a free port, and its URL."""
    server = ServerProcess(
        [DRAGOMAN, "mcp", "--http", "127.0.0.1:0"], here, address=ADDRESS.pattern, seconds=START_SECONDS
    )
    with server:
        yield server.url
        server.end()


# -- the inspector -----------------------------------------------------------------------------------------------------


class Inspector:
    """The inspector's command line. Each call is a session with a server of its own, and a registry that stays."""

    def __init__(self, here: Path, era: str, url: str | None = None) -> None:
        self._here = here
        self._era = era
        self._server = [url] if url else [str(DRAGOMAN), "mcp", "--store", f"sqlite:///{here / 'registry.db'}"]
        self.called: set[str] = set()

    def tools(self) -> list[str]:
        """The tools, if no host should have trouble with their schemas: else it leaves with 6."""
        listed = self._ask("--method", "tools/list", "--strict")
        assert "Error:" not in listed.stderr
        return [tool["name"] for tool in json.loads(listed.stdout)["result"]["tools"]]

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """What a tool gives. The inspector compares it with the tool's output schema; an error leaves with 5."""
        self.called.add(tool)
        words = ["--method", "tools/call", "--tool-name", tool, "--tool-args-json", json.dumps(arguments)]
        return json.loads(self._ask(*words).stdout)["result"]["structuredContent"]

    def _ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        # The server's own options would be taken for the inspector's, but for the dashes before them.
        arguments = ["--protocol-era", self._era, "--format", "json", *words]
        server = self._server if len(self._server) == 1 else ["--", *self._server]
        done = run(self._here, "mcp-inspector", "--cli", *arguments, *server)
        assert done.returncode == 0, (words, done.returncode, done.stdout, done.stderr)
        return done


@pytest.mark.smoke
@BOTH_ERAS
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_the_inspector_finds_nothing_in_strict_mode_and_calls_every_tool(
    era: str, transport: str, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        place = stack.enter_context(over_http(tmp_path)) if transport == "http" else None
        url = stack.enter_context(served(agent))
        host = Inspector(tmp_path, era, place)
        assert host.tools() == TOOLS
        calls_every_tool(host, url)
    assert host.called == set(TOOLS)


def calls_every_tool(host: Inspector, url: str) -> None:
    assert host.call("validate_agent_card", base_url=url)["validation"] == "passed"
    record = host.call("resolve_agent_card", base_url=url)
    agent_id = record["agent_id"]
    assert [each["agent_id"] for each in host.call("list_remote_agents")["agents"]] == [agent_id]
    assert host.call("get_extended_agent_card", agent_id=agent_id)["card"] == record["card"]
    done = host.call("send_message", agent_id=agent_id, text="naïve ☃", skill_id="echo")
    assert (done["status"]["state"], done["text"]) == ("completed", "naïve ☃")
    begun = host.call("send_streaming_message", agent_id=agent_id, text="go", skill_id="slow")["task_id"]
    seen = host.call("subscribe_to_task", task_id=begun, wait_seconds=0.2)
    assert (seen["subscription"], seen["current_state"]) == ("active", "working")
    assert host.call("get_task", task_id=begun)["status"]["state"] == "working"
    assert {task["id"] for task in host.call("list_tasks", limit=5)["tasks"]} == {begun, done["id"]}
    hook = host.call("configure_push_notifications", agent_id=agent_id, webhook_url=f"{url}/hook")
    assert hook["active"] is True
    assert host.call("cancel_task", task_id=begun) == {"task_id": begun, "status": "canceled"}


# -- the conformance suite ---------------------------------------------------------------------------------------------

PROMPTS = "this server has no prompts and does not say it had"
FIXTURE = "needs a tool, resource or prompt that only servers made for this suite have"
RUN = {
    "caching",
    "dns-rebinding-protection",
    "http-header-validation",
    "input-required-result-unsupported-methods",
    "ping",
    "resources-list",
    "sep-2164-resource-not-found",
    "server-initialize",
    "server-session-lifecycle",
    "server-sse-multiple-streams",
    "server-stateless",
    "tools-list",
}
LEFT_OUT = {
    r"completion-complete": "nothing here could be completed for a user while typing",
    r"elicitation-sep(1034-defaults|1330-enums)": FIXTURE,
    r"http-custom-header-server-validation": "no tool here wants an argument as a header",
    r"input-required-result-(?!unsupported-methods).+": FIXTURE,
    r"json-schema-2020-12": FIXTURE,
    r"logging-set-level": "log lines are for who runs the server, not for hosts",
    r"prompts-.+": PROMPTS,
    r"resources-(read-text|read-binary|templates-read)": FIXTURE,
    r"resources-(un)?subscribe": "what a task has produced is not changed afterwards",
    r"server-sse-polling": "checks nothing but advice for servers that let streams be taken up again",
    r"tools-call-.+": FIXTURE,
}
# Checks of scenarios that are run.
LEFT_OUT_CHECKS = {
    "sep-2549-prompts-list-caching-hints": PROMPTS,
    "sep-2575-server-rejects-undeclared-capability": FIXTURE,
    "sep-2575-missing-capability-http-400": FIXTURE,
    "sep-2575-http-server-no-independent-requests-on-stream": FIXTURE,
    "sep-2575-server-no-log-without-loglevel": FIXTURE,
}
# Of the scenarios of the tasks extension the rest needs tools of the suite; these checks do without.
TASKS = {
    "tasks-capability-negotiation": {"tasks-extension-advertised", "sep-2663-tasks-methods-non-declaring"},
    "tasks-dispatch-and-envelope": {
        "sep-2663-tasks-get-invalid-task-id-32602",
        "sep-2663-tasks-result-removed-method-not-found",
        "tasks-removed-tasks-list",
    },
    "tasks-request-headers": {"tasks-headers-reject-mismatched-method"},
}
VALID = "wire-schema-valid"


class Check(NamedTuple):
    """One check of a scenario, and how it went."""

    scenario: str
    id: str
    status: str
    why: str


def conformance(here: Path, url: str, *which: str) -> list[Check]:
    """What the suite finds out about a server."""
    results = here / "results"
    done = run(here, "conformance", "server", "--url", url, "--output-dir", str(results), *which)
    found: list[Check] = []
    for file in sorted(results.glob("server-*/checks.json")):
        scenario = re.fullmatch(r"server-(.+)-\d{4}-\d\d-\d\dT.+", file.parent.name)
        assert scenario, file
        checks = json.loads(file.read_text())
        found += [Check(scenario[1], each["id"], each["status"], each.get("errorMessage", "")) for each in checks]
    assert found, done.stdout + done.stderr
    return found


@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25", "2026-07-28"])
def test_the_conformance_suite_finds_no_fault(revision: str, tmp_path: Path) -> None:
    with over_http(tmp_path) as url:
        checks = conformance(tmp_path, url, "--suite", "all", "--spec-version", revision)
    scenarios = {check.scenario for check in checks}
    left_out = {each for each in scenarios for pattern in LEFT_OUT if re.fullmatch(pattern, each)}
    assert scenarios - left_out == scenarios & RUN, "a scenario is neither run nor left out"
    # What is on the wire is right even where a scenario does not come far.
    bad = [check for check in checks if check.id == VALID and check.status != "SUCCESS"]
    meant = [check for check in checks if check.scenario in RUN and check.id not in LEFT_OUT_CHECKS]
    bad += [check for check in meant if check.status == "FAILURE"]
    assert not bad, "\n".join(map(str, bad))
    good = [check for check in meant if check.status == "SUCCESS"]
    assert {check.scenario for check in good} == scenarios & RUN


@pytest.mark.parametrize("scenario", TASKS)
def test_the_conformance_suite_finds_no_fault_with_the_tasks_extension(scenario: str, tmp_path: Path) -> None:
    with over_http(tmp_path) as url:
        checks = conformance(tmp_path, url, "--scenario", scenario)
    good = {check.id for check in checks if check.status == "SUCCESS"}
    assert good >= TASKS[scenario] | {VALID}, "\n".join(map(str, checks))
