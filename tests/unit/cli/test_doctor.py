"""`dragoman doctor`: what it finds, what it says to do, and that it writes nothing."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.command import clean_environment
from unit.cli.sqlite_file import KILLED, opened

from dragoman import __version__
from dragoman.cli.doctor.command import check_open_files, check_sqlite_library
from dragoman.engine.ports.store import TaskQuery
from dragoman.model.state import State
from dragoman.stores.sqlite.admin.backup import back_up
from dragoman.stores.sqlite.admin.health import LARGE_WAL, HealthFinding, check_free_space, examine
from dragoman.stores.sqlite.schema import VERSION
from dragoman.testing.store_writes import SCOPE, create, row_of

# Reads a store as somebody who owns nothing.
# urllib is for `Path.as_uri`, which imports it late from Python 3.13 on: perhaps from a folder of root.
AS_NOBODY = """
import os, sys, urllib.parse
from pathlib import Path
from dragoman.stores.sqlite.admin.health import examine
if os.geteuid() == 0:
    os.setresuid(65534, 65534, 65534)
for finding in examine(Path(sys.argv[1])):
    print(*finding[:3])
"""


def run(folder: Path, command: list[str], before: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, *command]
    if before:
        words = ["sh", "-c", f"{before} exec {shlex.join(words)}"]
    return subprocess.run(
        words, cwd=folder, env=clean_environment(**environ), capture_output=True, text=True, timeout=30, check=False
    )


def doctor(folder: Path, *args: str, before: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    return run(folder, ["-m", "dragoman.cli.main", "doctor", *args], before, **environ)


def line(done: subprocess.CompletedProcess[str], check: str) -> str:
    """The one line about something, with single spaces."""
    (found,) = [text for text in done.stdout.splitlines() if text[6:].startswith(f"{check} ")]
    return " ".join(found.split())


def about(findings: list[HealthFinding], check: str) -> HealthFinding:
    (found,) = [finding for finding in findings if finding.check == check]
    return found


async def fill(path: Path, *states: State) -> None:
    async with opened(path) as store:
        rows = [row_of(store, f"t{number}", state=state) for number, state in enumerate(states)]
        await asyncio.gather(*(create(store, row, joins_context=True) for row in rows))


def traces(folder: Path) -> dict[str, tuple[int, int]]:
    return {file.name: (file.stat().st_size, file.stat().st_mtime_ns) for file in folder.iterdir()}


def change(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter, which those of pytest are not."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


# -- a whole run -----------------------------------------------------------------------------------------------------


def test_where_nothing_was_served_yet_nothing_is_wrong_and_nothing_is_made(tmp_path: Path):
    done = doctor(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert line(done, "versions").startswith(f"ok versions Dragoman {__version__}, Python 3.")
    assert line(done, "file") == "ok file .dragoman/tasks.db is not there yet, the server makes it"
    assert "FAIL" not in done.stdout
    assert traces(tmp_path) == {}


async def test_a_store_at_rest_is_read_without_leaving_a_trace(tmp_path: Path):
    await fill(tmp_path / "t.db", State.COMPLETED, State.COMPLETED, State.FAILED)
    assert "t.db-wal" not in traces(tmp_path)
    before = traces(tmp_path)
    done = doctor(tmp_path, "--store", "sqlite:///t.db")
    assert done.returncode == 0
    assert line(done, "lock") == "ok lock no server is running"
    assert line(done, "schema") == f"ok schema version {VERSION}"
    assert line(done, "integrity") == "ok integrity quick_check finds no damage"
    assert line(done, "journal") == "ok journal WAL"
    assert line(done, "tasks") == "ok tasks 2 completed, 1 failed"
    assert line(done, "recovery") == "ok recovery nothing to recover"
    assert line(done, "counters") == "ok counters agree with the tasks"
    assert traces(tmp_path) == before


async def test_the_doctor_names_the_running_server(tmp_path: Path):
    async with opened(tmp_path / "t.db") as store:
        await create(store, row_of(store, "a", state=State.WORKING))
        before = traces(tmp_path)
        done = doctor(tmp_path, "--store", "sqlite:///t.db")
        assert traces(tmp_path).keys() == before.keys()
        await create(store, row_of(store, "b"))
    assert done.returncode == 0
    assert line(done, "lock") == f"ok lock in use by pid {os.getpid()}"
    assert line(done, "recovery") == "ok recovery 1 task at work"
    assert line(done, "journal") == "ok journal WAL"


async def test_as_json_it_says_the_same(tmp_path: Path):
    await fill(tmp_path / "t.db", State.COMPLETED)
    change(tmp_path / "t.db", "UPDATE state_counts SET tasks = 7")
    text = doctor(tmp_path, "--store", "sqlite:///t.db")
    done = doctor(tmp_path, "--store", "sqlite:///t.db", "--json")
    answer: dict[str, Any] = json.loads(done.stdout)
    assert (text.returncode, done.returncode, answer["result"]) == (1, 1, "FAIL")
    reports = [f"{one['level']} {one['check']}" for one in answer["checks"]]
    assert reports == [" ".join(one[:19].split()) for one in text.stdout.splitlines()]
    counters = next(one for one in answer["checks"] if one["check"] == "counters")
    assert counters["do"].startswith("stop the server, then run sqlite3 t.db")


# -- the settings ----------------------------------------------------------------------------------------------------


def test_it_tells_where_each_setting_comes_from(tmp_path: Path):
    (tmp_path / "dragoman.toml").write_text("[serve]\nport = 1\nlog = 'json'\n[limits]\nbody = 5\n")
    done = doctor(tmp_path, "--store", "memory:", DRAGOMAN_PORT="2", PORT="3", BIND_HOST="::1", DRAGOMAN_DEV="yes")
    reports = [" ".join(text.split()) for text in done.stdout.splitlines() if "settings" in text]
    assert reports[:-1] == [
        "ok settings host = ::1, from environment BIND_HOST",
        "ok settings port = 2, from environment DRAGOMAN_PORT",
        "ok settings store = memory:, from --store",
        "ok settings dev = on, from environment DRAGOMAN_DEV",
        "ok settings log = json, from dragoman.toml [serve] log",
        "ok settings limits_body = 5, from dragoman.toml [limits] body",
    ]
    assert reports[-1].startswith("ok settings by default ")
    assert ", heartbeat = 15, " in reports[-1]
    assert line(done, "store") == "ok store memory: tasks are gone when the server stops"


def test_it_never_prints_the_secret(tmp_path: Path):
    done = doctor(tmp_path, DRAGOMAN_SECRET="correct-horse-battery-staple-0123456789")
    assert "secret = (hidden), from environment DRAGOMAN_SECRET\n" in done.stdout
    assert "horse" not in done.stdout + done.stderr


def test_a_variable_that_is_no_setting_is_a_warning(tmp_path: Path):
    done = doctor(tmp_path, DRAGOMAN_PROT="1")
    assert (done.returncode, done.stderr) == (0, "")
    assert "warn  settings     environment DRAGOMAN_PROT: there is no such setting, it is ignored" in done.stdout


@pytest.mark.parametrize(
    ("args", "environ", "says"),
    [
        ([], {"DRAGOMAN_PORT": "x"}, "environment DRAGOMAN_PORT: must be a whole number from 0 to 65535"),
        (["--store", "tasks.db"], {}, "--store tasks.db: must be `memory:`, `sqlite:///relative.db`"),
        (["--config", "no.toml"], {}, "no.toml: there is no such settings file"),
    ],
)
def test_settings_that_cannot_be_used_fail_and_the_rest_is_still_checked(
    tmp_path: Path, args: list[str], environ: dict[str, str], says: str
):
    done = doctor(tmp_path, *args, **environ)
    assert (done.returncode, done.stderr) == (2, "")
    assert line(done, "settings").startswith(f"FAIL settings {says}")
    assert line(done, "uvloop").startswith("ok")


def test_the_library_of_grpc_is_checked_where_it_is_served(tmp_path: Path):
    assert "grpcio" not in doctor(tmp_path).stdout
    assert line(doctor(tmp_path, DRAGOMAN_GRPC="50051"), "grpcio").startswith("ok")


# -- the file --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("PRAGMA user_version = 99", "t.db was written by a newer Dragoman (schema 99, this one knows"),
        ("PRAGMA user_version = 0", "t.db is another program's database: use another --store"),
    ],
)
async def test_a_file_that_is_no_store_for_this_version_fails(tmp_path: Path, script: str, says: str):
    await fill(tmp_path / "t.db")
    change(tmp_path / "t.db", script)
    done = doctor(tmp_path, "--store", "sqlite:///t.db")
    assert done.returncode == 1
    assert line(done, "schema").startswith(f"FAIL schema {says}")


def test_a_file_that_is_no_database_fails(tmp_path: Path):
    (tmp_path / "t.db").write_text("no database, but long enough to be taken for one\n" * 100)
    found = about(examine(tmp_path / "t.db"), "schema")
    assert (found.level, found.says) == ("FAIL", f"{tmp_path}/t.db is not a store of Dragoman: use another --store")


def test_a_folder_for_a_file_and_a_file_for_a_folder_fail(tmp_path: Path):
    assert about(examine(tmp_path), "file").level == "FAIL"
    (tmp_path / "file").touch()
    found = about(examine(tmp_path / "file" / "t.db"), "folder")
    assert (found.level, found.says) == ("FAIL", f"{tmp_path}/file is not a folder")


def test_an_empty_file_is_one_that_the_next_start_fills(tmp_path: Path):
    (tmp_path / "t.db").touch()
    findings = examine(tmp_path / "t.db")
    assert findings[-1] == HealthFinding("ok", "schema", "the file is empty, the next start makes the tables")


async def test_a_store_of_an_older_version_is_one_that_the_next_start_brings_up(tmp_path: Path):
    await fill(tmp_path / "t.db", State.COMPLETED)
    change(
        tmp_path / "t.db",
        "PRAGMA user_version = 7; ALTER TABLE users ADD COLUMN failures; ALTER TABLE users ADD COLUMN locked_until_ms",
    )
    findings = examine(tmp_path / "t.db")
    assert about(findings, "schema").says == f"version 7, the next start makes it version {VERSION}"
    assert about(findings, "tasks").says == "1 completed"
    assert not [finding for finding in findings if finding.level == "FAIL"]


async def test_damage_fails_and_says_to_restore(tmp_path: Path):
    await fill(tmp_path / "t.db", *[State.COMPLETED] * 500)
    with (tmp_path / "t.db").open("r+b") as file:
        file.seek(20 * 4096)
        file.write(b"\xff" * 4096 * 5)
    done = doctor(tmp_path, "--store", "sqlite:///t.db")
    assert (done.returncode, line(done, "integrity")[:32]) == (1, "FAIL integrity t.db is damaged: ")
    assert line(done, "integrity").endswith("stop the server, keep t.db and t.db-wal, and restore a backup")


async def test_a_large_file_is_read_for_damage_only_when_that_is_wanted(tmp_path: Path):
    await fill(tmp_path / "t.db", State.COMPLETED)
    found = about(examine(tmp_path / "t.db", quick_bytes=1), "integrity")
    assert (found.level, found.do) == ("warn", "use --full to check it")
    full = doctor(tmp_path, "--store", "sqlite:///t.db", "--full")
    assert line(full, "integrity") == "ok integrity integrity_check finds no damage"


async def test_a_large_wal_without_a_server_is_a_warning(tmp_path: Path):
    await fill(tmp_path / "t.db", State.COMPLETED)
    (tmp_path / "t.db-wal").touch()
    os.truncate(tmp_path / "t.db-wal", LARGE_WAL + 1)
    done = doctor(tmp_path, "--store", "sqlite:///t.db")
    assert done.returncode == 0
    assert line(done, "size").startswith("warn size ")
    assert "WAL 64.0 MB: start the server once" in line(done, "size")


def test_tasks_of_a_killed_server_are_read_from_the_wal(tmp_path: Path):
    assert run(tmp_path, ["-c", KILLED]).returncode == -signal.SIGKILL
    done = doctor(tmp_path, "--store", "sqlite:///t.db")
    assert done.returncode == 0
    assert line(done, "lock") == "ok lock no server is running"
    assert line(done, "recovery").startswith("warn recovery 1 task will be failed or run again at the next start")


async def test_unfinished_and_parked_tasks_are_counted(tmp_path: Path):
    states = (State.SUBMITTED, State.WORKING, State.WORKING, State.INPUT_REQUIRED, State.AUTH_REQUIRED, State.CANCELED)
    await fill(tmp_path / "t.db", *states)
    findings = examine(tmp_path / "t.db")
    assert about(findings, "tasks").says == "1 submitted, 2 working, 1 canceled, 1 input-required, 1 auth-required"
    assert about(findings, "recovery").says == "3 tasks will be failed or run again at the next start"
    assert about(findings, "parked").says == "2 tasks waiting for an answer"


async def test_a_backup_is_well_too(tmp_path: Path):
    await fill(tmp_path / "t.db", State.COMPLETED)
    back_up(tmp_path / "t.db", tmp_path / "copy.db")
    findings = examine(tmp_path / "copy.db", full=True)
    assert {finding.level for finding in findings} == {"ok"}
    assert about(findings, "journal").says == "delete, as in a backup; the next start makes it WAL"


@pytest.mark.parametrize(
    "script",
    [
        "UPDATE state_counts SET tasks = tasks + 1 WHERE state = 3 AND scope = 1",
        "UPDATE state_counts SET tasks = tasks + 1 WHERE state = 3 AND scope = 0",
        "DELETE FROM state_counts WHERE state = 4 AND scope = 1",
        "INSERT INTO state_counts VALUES (77, 3, 1)",
        "UPDATE context_counts SET tasks = 99",
    ],
)
async def test_wrong_counters_fail_and_what_it_says_to_run_puts_them_right(tmp_path: Path, script: str):
    await fill(tmp_path / "t.db", State.COMPLETED, State.COMPLETED, State.FAILED)
    change(tmp_path / "t.db", script)
    found = about(examine(tmp_path / "t.db"), "counters")
    assert found.level == "FAIL"
    assert found.says == "1 do not agree with the tasks: lists tell wrong totals, no task is lost"
    command = shlex.split(found.do.partition("then run ")[2])
    assert command[:2] == ["sqlite3", str(tmp_path / "t.db")]
    change(tmp_path / "t.db", command[2])
    assert about(examine(tmp_path / "t.db"), "counters").level == "ok"
    async with opened(tmp_path / "t.db") as store:
        await create(store, row_of(store, "late"), joins_context=True)
        assert (await store.page(TaskQuery(SCOPE))).total == 4
        assert (await store.page(TaskQuery(SCOPE, context_id="context"))).total == 4
    assert about(examine(tmp_path / "t.db"), "counters").level == "ok"


def test_a_store_that_others_can_read_is_a_warning(open_folder: Path):
    path = open_folder / "a t.db"
    asyncio.run(fill(path, State.COMPLETED))
    path.chmod(0o604)
    found = about(examine(path), "permissions")
    assert (found.level, found.do) == ("warn", f"chmod o-rwx '{path}'")
    subprocess.run(["sh", "-c", found.do], check=True)
    assert about(examine(path), "permissions").level == "ok"
    path.chmod(0o604)
    open_folder.chmod(0o700)
    assert about(examine(path), "permissions").level == "ok"


def test_another_user_than_the_one_that_serves_gets_failures_for_file_and_folder(open_folder: Path):
    path = open_folder / "t.db"
    asyncio.run(fill(path, State.WORKING))
    path.chmod(0o444)
    (open_folder / "t.db.lock").chmod(0o000)
    open_folder.chmod(0o555)
    done = run(open_folder, ["-c", AS_NOBODY, str(path)])
    open_folder.chmod(0o755)
    assert f"FAIL folder {open_folder} may not be written by this user\n" in done.stdout
    assert f"FAIL file {path} may not be read and written by this user\n" in done.stdout
    assert "warn lock whether a server is running cannot be told\n" in done.stdout


def test_a_store_that_cannot_be_reached_fails(open_folder: Path):
    (open_folder / "closed").mkdir()
    (open_folder / "closed").chmod(0o000)
    done = run(open_folder, ["-c", AS_NOBODY, str(open_folder / "closed" / "t.db")])
    (open_folder / "closed").chmod(0o755)
    assert done.stdout.splitlines()[-1].startswith(f"FAIL file {open_folder}/closed/t.db cannot be reached")


# -- the machine -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("free", "level"), [(49_000_000, "FAIL"), (51_000_000, "warn"), (999_000_000, "warn"), (1_100_000_000, "ok")]
)
def test_little_free_disk_space_is_reported(free: int, level: str):
    found = check_free_space(free)
    assert (found.level, bool(found.do)) == (level, level != "ok")


@pytest.mark.parametrize(
    ("level", "versions"), [("warn", "3.40.1 3.44.5 3.45.0 3.50.6 3.51.2"), ("ok", "3.44.6 3.50.7 3.51.3 3.53.0")]
)
def test_a_sqlite_with_the_wal_reset_bug_is_a_warning(level: str, versions: str):
    for version in versions.split():
        one, two, three = (int(number) for number in version.split("."))
        assert check_sqlite_library((one, two, three)).level == level


@pytest.mark.parametrize(("limit", "level"), [(1023, "warn"), (1024, "ok"), (-1, "ok")])
def test_few_open_files_are_a_warning(limit: int, level: str):
    assert check_open_files(limit).level == level


def test_the_limit_of_this_process_is_the_one_that_counts(tmp_path: Path):
    done = doctor(tmp_path, before="ulimit -n 200;")
    says = "warn open files only 200 files and connections may be open at once: raise it, as with `ulimit -n 65536`"
    assert (done.returncode, line(done, "open files")) == (0, says)
