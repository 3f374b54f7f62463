"""`users`, `push`, `backup`, `nodes` and `doctor` on a store in PostgreSQL, as on one in a file."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import httpx2
import pytest
from postgres_server import database, programs_path

from dragoman import Agent
from dragoman.stores.administration import HealthFinding, NodeState, NodeStatus
from dragoman.stores.postgres.admin import health
from dragoman.stores.postgres.admin.backup import split_password
from dragoman.stores.postgres.admin.nodes import check_fleet, check_served
from dragoman.stores.postgres.admin.standbys import StandbyFacts, check_hosts, check_standbys
from dragoman.stores.postgres.sql import schema
from dragoman.testing import served

from .conftest import Typed

NOW = 1_700_000_000_000
TASKS = f"""
INSERT INTO scopes (agent, tenant, owner) VALUES ('hello', '', 'ann');
INSERT INTO tasks (number, id, scope, context_id, origin, state, status_ms, generation, created_ms, epoch, owner)
VALUES (1, 'task-1', 1, 'c', '', 2, {NOW}, 3, {NOW}, 1, 7), (2, 'task-2', 1, 'd', '', 1, {NOW}, 1, {NOW}, 1, NULL),
    (3, 'draft', 1, 'e', '', -1, {NOW}, 1, {NOW}, 1, 7);
UPDATE tasks SET queued_at = clock_timestamp() - interval '2 minutes';
UPDATE dragoman_meta SET value = 3 WHERE key = 'numbers';
INSERT INTO events VALUES (1, 1, 'one'), (1, 2, 'two'), (1, 3, 'three'), (2, 1, 'one');
INSERT INTO pushes (task, id, dialect, url, secrets, cursor, created_ms, tries, failing_ms, due_ms, state, error, owner)
VALUES (1, 'well', '', 'https://u:pw@example.com/', 'sealed', 3, {NOW}, 0, 0, 0, 0, '', 7),
    (1, 'failing', '', 'https://example.com/', 'sealed', 1, {NOW}, 3, {NOW}, {NOW}, 0, 'HTTP 503', 7),
    (2, 'dead', '', 'https://example.com/', 'sealed', 0, {NOW}, 400, {NOW}, 0, 2, 'TIMED_OUT', NULL),
    (2, 'done', '', 'https://example.com/', 'sealed', 1, {NOW}, 0, 0, 0, 1, '', NULL);
INSERT INTO nodes (id, name, agents, version, lease, keys, seen) VALUES
    (7, 'one', '{{hello}}', '0.1.0', 20, '{{}}', clock_timestamp()),
    (8, 'two', '{{hello}}', '0.2.0', 20, '{{}}', clock_timestamp() - interval '1 minute');
INSERT INTO nodes (id, name, agents, version, lease, keys, dead) VALUES
    (9, 'three', '{{hello}}', '0.1.0', 20, '{{}}', true);
"""


@pytest.fixture
def filled(postgres_url: str) -> str:
    """The URL of a database with tasks, webhooks and nodes, and with a password that no text may have."""
    database(postgres_url, TASKS, "SELECT")
    parts = urlsplit(postgres_url)
    return urlunsplit(parts._replace(netloc=parts.netloc.replace("@", ":hunter2@", 1)))


def run(typed: Typed, *words: str) -> Any:
    ended = typed(*words)
    assert "hunter2" not in ended.out + ended.err
    return ended


# -- users -----------------------------------------------------------------------------------------------------------


def test_a_cookie_needs_the_secret_of_the_servers(typed: Typed, filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run(typed, "users", "add", "ann", "--no-password", "--store", filled)
    assert (
        "set DRAGOMAN_SECRET to the one that the servers have"
        in run(typed, "users", "cookie", "ann", "--store", filled).err
    )
    monkeypatch.setenv("DRAGOMAN_SECRET", "0123456789abcdef0123456789abcdef")
    assert run(typed, "users", "cookie", "ann", "--store", filled).out


# -- push ------------------------------------------------------------------------------------------------------------


def test_webhooks_are_listed_and_retried(typed: Typed, filled: str) -> None:
    def listed() -> dict[str, str]:
        rows = json.loads(run(typed, "push", "list", "--json", "--store", filled).out)
        return {each["id"]: each["state"] for each in rows}

    assert listed() == {"well": "waiting", "failing": "failing", "dead": "dead"}
    assert run(typed, "push", "retry", "task-2", "--store", filled).err == "retrying 1 webhook\n"
    assert run(typed, "push", "retry", "--store", filled).err == "retrying 1 webhook\n"
    assert listed() == {"well": "waiting", "failing": "woken", "dead": "woken"}
    owners = dict(database(filled, "SELECT id, owner FROM pushes"))
    assert owners == {"well": 7, "failing": None, "dead": None, "done": None}, "any node may deliver them"
    assert run(typed, "push", "retry", "nothing", "--store", filled).code == 2


# -- backup ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs of PostgreSQL are on the PATH, in the version of the server."""
    monkeypatch.setenv("PATH", programs_path())
    if shutil.which("pg_dump") is None:
        pytest.skip("pg_dump is not installed")


@pytest.mark.usefixtures("programs")
def test_a_server_goes_on_from_a_backup_that_was_restored_as_the_command_says(
    typed: Typed, filled: str, empty_postgres_url: str, tmp_path: Path
) -> None:
    with serving(filled) as server:
        sent = server.post("/message:send", json=message("Ada")).json()["task"]
        done = run(typed, "backup", "copy.dump", "--store", filled)
    copy = tmp_path / "copy.dump"
    assert (done.code, done.out) == (0, f"copy.dump: 3 tasks, {copy.stat().st_size} bytes\n")
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir() if "dump" in path.name] == ["copy.dump"]
    heading, create, restore, _ = done.err.splitlines()
    assert heading == (
        "to restore it, create a database, as a role that may, and fill it, with the password in PGPASSWORD:"
    )
    owner = urlsplit(filled).username
    assert create == f"  CREATE DATABASE restored OWNER {owner} ENCODING 'UTF8' TEMPLATE template0"
    name = urlsplit(empty_postgres_url).path[1:]
    environ = os.environ | {"PGPASSWORD": "hunter2"}
    subprocess.run(restore.replace("/restored ", f"/{name} "), shell=True, env=environ, check=True, cwd=tmp_path)
    for table in ("scopes", "events", "pushes", "snapshots", "dragoman_meta"):
        rows = f"SELECT {table}::text FROM {table} ORDER BY 1"
        assert database(empty_postgres_url, rows) == database(filled, rows)
    with serving(empty_postgres_url) as server:
        assert server.get(f"/tasks/{sent['id']}").json() == sent
        assert server.post("/message:send", json=message("Bob")).json()["task"]["id"] != sent["id"]


@contextmanager
def serving(store: str) -> Generator[httpx2.Client]:
    """A server on a store, and a client with its address."""
    agent = Agent("greeter", description="Greets")

    @agent.skill
    def greet(name: str) -> str:
        """Greet somebody."""
        return f"Hello, {name}!"

    with (
        served(agent, store=store, secret="0123456789abcdef0123456789abcdef", drain=0) as url,
        httpx2.Client(base_url=url, trust_env=False, verify=False, timeout=20) as client,
    ):
        yield client


def message(text: str) -> dict[str, Any]:
    return {"message": {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": text}]}}


@pytest.mark.usefixtures("programs")
def test_only_the_schema_of_the_store_is_backed_up(typed: Typed, empty_postgres_url: str, tmp_path: Path) -> None:
    database(empty_postgres_url, "CREATE TABLE another (id int)", 'CREATE SCHEMA "My Agents"', "SELECT")
    store = f"{empty_postgres_url}?search_path=%22My%20Agents%22"
    assert run(typed, "users", "add", "ann", "--no-password", "--store", store).code == 0
    assert run(typed, "backup", "copy.dump", "--store", store).code == 0
    listed = subprocess.run(["pg_restore", "--list", "copy.dump"], cwd=tmp_path, capture_output=True, check=True)
    assert b"TABLE DATA My Agents users" in listed.stdout
    assert b"another" not in listed.stdout


@pytest.mark.usefixtures("programs")
def test_an_existing_file_is_kept_and_a_failed_backup_leaves_none(typed: Typed, filled: str, tmp_path: Path) -> None:
    (tmp_path / "copy.dump").write_text("mine")
    assert "--force to replace it" in run(typed, "backup", "copy.dump", "--store", filled).err
    missing = urlunsplit(urlsplit(filled)._replace(path="/nothing"))
    assert "does not exist" in run(typed, "backup", "copy.dump", "--force", "--store", missing).err
    assert (tmp_path / "copy.dump").read_text() == "mine"
    assert not (tmp_path / "copy.dump.part").exists()


def test_without_pg_dump_it_says_what_to_install(
    typed: Typed, filled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    ended = run(typed, "backup", "copy.dump", "--store", filled)
    assert "pg_dump is not on the PATH: install the client programs of PostgreSQL" in ended.err
    assert not list(tmp_path.glob("copy*"))


def test_a_pg_dump_that_is_too_old_is_an_error(
    typed: Typed, filled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pg_dump", "pg_restore"):
        (tmp_path / name).write_text(
            "#!/bin/sh\necho 'detail: server version: 99.1; pg_dump version: 15.18' >&2; exit 1\n"
        )
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    ended = run(typed, "backup", "copy.dump", "--store", filled)
    assert "pg_dump is older than the server: install the client programs of PostgreSQL 99 or newer" in ended.err


@pytest.mark.parametrize(
    ("url", "plain", "password"),
    [
        ("postgresql://me:p%40s@one,two:1/db?sslmode=allow", "postgresql://me@one,two:1/db?sslmode=allow", "p@s"),
        ("postgresql:///db?host=/run/pg&password=x&user=me", "postgresql:///db?host=/run/pg&user=me", "x"),
        ("postgresql://me@one/db?search_path=mine&sslpassword=x", "postgresql://me@one/db", None),
        ("postgresql://me@one/db", "postgresql://me@one/db", None),
    ],
)  # fmt: skip
def test_a_password_is_never_on_the_command_line(url: str, plain: str, password: str | None) -> None:
    assert split_password(url) == (plain, password)


# -- nodes -----------------------------------------------------------------------------------------------------------


def test_nodes_are_listed_with_what_they_do(typed: Typed, filled: str) -> None:
    database(filled, "UPDATE tasks SET begun = true WHERE number = 1", "UPDATE nodes SET version = '0.1.0'", "SELECT")
    shown = run(typed, "nodes", "--store", filled)
    header, one, two = shown.out.splitlines()
    assert " ".join(header.split()) == "NAME STATE SEEN SINCE RUNNING CLAIMED WEBHOOKS VERSION LEASE AGENTS"
    name, state, seen, *_, running, claimed, webhooks, version, lease, _, agents = one.split()
    assert (name, state, running, claimed, webhooks) == ("one", "alive", "1", "1", "2")
    assert (float(seen) < 10, version, lease, agents) == (True, "0.1.0", "20", "hello")
    assert two.split()[:2] == ["two", "late"]
    assert shown.err == "1 task waits for a node\n"


def test_a_node_that_runs_no_tasks_is_a_front(typed: Typed, filled: str) -> None:
    database(filled, "UPDATE nodes SET runs = false, version = '0.2.0' WHERE id = 7", "SELECT")
    shown = run(typed, "nodes", "--store", filled)
    assert shown.out.splitlines()[1].split()[:2] == ["one", "front"]


def test_nodes_that_have_ended_are_listed_on_request(typed: Typed, filled: str) -> None:
    database(filled, "UPDATE nodes SET dead = true, stopped = true WHERE id = 8", "SELECT")
    listed = json.loads(run(typed, "nodes", "--all", "--json", "--store", filled).out)
    assert {node["name"]: node["state"] for node in listed["nodes"]} == {
        "one": "alive",
        "two": "stopped",
        "three": "dead",
    }
    assert [node["name"] for node in json.loads(run(typed, "nodes", "--json", "--store", filled).out)["nodes"]] == [
        "one"
    ]


def test_mismatches_are_warnings_below_the_nodes(typed: Typed, filled: str) -> None:
    database(
        filled,
        "UPDATE nodes SET seen = clock_timestamp(), name = 'one' WHERE id = 8",
        "UPDATE tasks SET agent = 'gone'",
        "SELECT",
    )
    assert run(typed, "nodes", "--store", filled).err.splitlines() == [
        "1 task waits for a node",
        "warning: 2 nodes are called one: give each a name of its own with --node: the conversations of programs "
        "belong to a name",
        "warning: an update is under way: 1 of 2 nodes on 0.2.0: update the others: one",
        "warning: no node serves gone, which has 2 unfinished tasks: start a node with this agent",
    ]


def test_nodes_without_a_server_or_a_store(typed: Typed, postgres_url: str, empty_postgres_url: str) -> None:
    assert run(typed, "nodes", "--store", postgres_url).err == "no server is running\n"
    assert "has no tables yet" in run(typed, "nodes", "--store", empty_postgres_url).err
    refused = run(typed, "nodes", "--store", "postgresql://me:hunter2@127.0.0.1:1/db")
    assert (refused.code, "refuses connections" in refused.err) == (1, True)


# -- doctor ----------------------------------------------------------------------------------------------------------


def test_the_doctor_says_how_the_database_and_its_nodes_are(typed: Typed, filled: str) -> None:
    checks = json.loads(run(typed, "doctor", "--json", "--store", filled).out)["checks"]
    found: dict[str, list[str]] = {}
    for check in checks:
        found.setdefault(check["check"], []).append(f"{check['level']} {check['says']}")
    assert found["store"][0].startswith("ok postgresql://postgres@127.0.0.1:")
    assert found["schema"] == [f"ok version {schema.VERSION}"]
    assert ("asyncpg" in found, "sqlite" in found) == (True, False)
    assert found["pooler"] == ["ok none"]
    one, two = found["nodes"]
    assert one.startswith("ok one, Dragoman 0.1.0, hello: seen ")
    assert two.startswith("warn two, Dragoman 0.2.0, hello: seen 6")
    assert found["queue"][0].startswith("warn 1 task waits for a node, the oldest for 12")


def test_the_doctor_on_what_is_no_store(typed: Typed, empty_postgres_url: str) -> None:
    def checked(url: str) -> list[str]:
        checks = json.loads(run(typed, "doctor", "--json", "--store", url).out)["checks"]
        return [f"{each['level']} {each['says']}" for each in checks if each["check"] in ("schema", "database")]

    assert checked(empty_postgres_url) == ["ok no tables yet, the next start makes them"]
    database(empty_postgres_url, "CREATE TABLE another (id int)", "SELECT")
    (other,) = checked(empty_postgres_url)
    assert "has tables of another program" in other
    (refused,) = checked("postgresql://me:hunter2@127.0.0.1:1/db")
    assert "127.0.0.1:1 refuses connections" in refused
    assert {other[:5], refused[:5]} == {"FAIL "}


def standbys(**facts: Any) -> HealthFinding:
    """The finding for a primary without standbys, except for these facts."""
    (finding,) = check_standbys(StandbyFacts("", "on", 0, 0, 0, None, 0)._replace(**facts))
    return finding


def test_a_url_that_acknowledges_too_early_is_a_warning() -> None:
    *_, finding = check_standbys(StandbyFacts("*", "local", 1, 1, 0, 0, 0))
    assert (finding.level, finding.says[:40]) == ("warn", "the URL sets synchronous_commit = local:")


def test_standbys_that_the_url_does_not_name_are_not_found() -> None:
    facts = StandbyFacts("*", "on", 1, 1, 0, 0, 0)
    assert [finding.says for finding in check_hosts(facts, 1)] == ["the URL names one host"]
    assert list(check_hosts(facts, 2)) == list(check_hosts(facts._replace(standbys=0), 1)) == []


def test_hosts_of_the_url_that_are_no_standbys_are_reported() -> None:
    facts = StandbyFacts("*", "on", 1, 1, 0, 0, 0)
    found = [*check_hosts(facts, 3), *check_hosts(facts._replace(standbys=0), 2)]
    assert [finding.says for finding in found] == [
        "the URL names 3 hosts, and 1 standby follows the primary",
        "the URL names 2 hosts, and no standbys follow the primary",
    ]


@pytest.mark.parametrize(
    ("finding", "level", "says"),
    [
        (health.check_version("14.2", 140_002), "warn", "older than what Dragoman is tested with"),
        (health.check_path(1, 2), "warn", "a connection pooler is in between"),
        (health.check_encryption(None, is_local=False), "warn", "not encrypted"),
        (health.check_encryption("TLSv1.3", is_local=False), "ok", "TLSv1.3"),
        (health.check_durability("on", "on"), "ok", "fsync = on"),
        (health.check_durability("off", "on"), "FAIL", "fsync = off"),
        (standbys(standbys=2, behind=2_000_000), "warn", "2, all asynchronous, up to 2.0 MB behind: promoting one can"),
        (standbys(standbys=2, hidden=2), "warn", "2, all asynchronous: promoting one can lose"),
        (standbys(configured="two"), "FAIL", "none of them is connected: commits wait"),
        (standbys(configured="two", standbys=2, synchronous=1), "ok", "2, 1 of them synchronous"),
        (standbys(configured="two", standbys=2, hidden=2), "ok", "2, synchronous_standby_names = 'two'"),
        (standbys(configured="two", standbys=1, hidden=1, waiting=3), "FAIL", "3 commits wait for a standby"),
        (health.check_clock(-3.0, 0.001), "warn", "differ by 3.000 s"),
        (health.check_clock(3.0, 2.5), "ok", "differ by 3.000 s"),
        (health.check_connections(97, 95, 11), "warn", "95 of 97 in use"),
        (health.check_listeners(1, 2), "warn", "1 of 2 nodes listen"),
        (health.check_notices(0.5), "warn", "50% of the NOTIFY queue"),
        (health.check_transactions(7200.0), "warn", "open for 2.0 hours"),
    ],
)
def test_each_check_has_its_bounds(finding: HealthFinding, level: str, says: str) -> None:
    assert (finding.level, says in finding.says) == (level, True), finding


def test_two_nodes_of_one_name_are_a_warning() -> None:
    (twins,) = check_fleet([node_status("vm"), node_status("vm"), node_status("vm", "late")])
    assert (twins.level, twins.says) == ("warn", "2 nodes are called vm")


def test_nodes_with_different_secrets_or_leases_are_a_warning() -> None:
    nodes = [node_status("a", keys=("old",)), node_status("b", keys=("new", "old")), node_status("c", lease=30.0)]
    warnings = [finding.says for finding in check_fleet(nodes)]
    assert warnings == ["a lacks the secret of another node", "their leases are 6 s and 30 s: the longest counts"]


def test_an_update_that_is_not_finished_is_a_warning() -> None:
    nodes = [node_status("a", version="0.9.0"), node_status("b", version="0.10.0"), node_status("c", version="0.10.0")]
    (update,) = check_fleet(nodes)
    assert update.says == "an update is under way: 2 of 3 nodes on 0.10.0"
    assert update.do == "update the others: a"
    assert list(check_fleet([node_status("a", "late", version="0.9.0"), *nodes[1:]])) == [], "it does not run"


def test_an_agent_with_unfinished_tasks_needs_a_node() -> None:
    (unserved,) = check_served({"hello": 2, "gone": 1}, [node_status("a"), node_status("b", "late")])
    assert unserved.says == "no node serves gone, which has 1 unfinished task"
    assert len(list(check_served({"hello": 2}, [node_status("b", "late")]))) == 1


def node_status(
    name: str, state: NodeState = "alive", *, version: str = "0.1.0", lease: float = 6.0, keys: tuple[str, ...] = ()
) -> NodeStatus:
    return NodeStatus(name, state, version, ("hello",), lease, keys, 0.5)


def test_tables_without_statistics_or_full_of_dead_rows_are_warnings() -> None:
    good = health.TableFacts("events", 10_000_000, 100_000, 10, analyzed=True)
    bad = health.TableFacts("tasks", 2_000_000, 5000, 6000, analyzed=False)
    size, statistics, dead = health.check_tables([good, bad])
    assert size.says == "12.0 MB; the largest tables: events 10.0 MB, tasks 2.0 MB"
    assert (statistics.level, statistics.do) == ("warn", "ANALYZE tasks")
    assert dead.says == "tasks has 6000 dead rows and 5000 live ones"
