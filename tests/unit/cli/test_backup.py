"""`dragoman backup`: one moment of the store in one file, whatever else happens."""

from __future__ import annotations

import asyncio
import secrets
import shlex
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from support.command import DRAGOMAN, clean_environment
from unit.cli.sqlite_file import KILLED, opened

from dragoman.engine.ports.store import Note, TaskQuery
from dragoman.model.error import DragomanError
from dragoman.model.state import State
from dragoman.stores.sqlite.admin.backup import STEP_PAGES, back_up, check_space
from dragoman.stores.sqlite.admin.health import examine
from dragoman.testing.store_writes import ALL, SCOPE, append, body, create, row_of


def dragoman(folder: Path, *args: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command, if something is to be before it in a shell."""
    words = [*DRAGOMAN, *args]
    command = ["sh", "-c", f"{before} exec {shlex.join(words)}"] if before else words
    return subprocess.run(
        command, cwd=folder, env=clean_environment(), capture_output=True, text=True, timeout=30, check=False
    )


def backup(folder: Path, *args: str, before: str = "") -> subprocess.CompletedProcess[str]:
    return dragoman(folder, "backup", "copy.db", "--store", "sqlite:///t.db", *args, before=before)


async def fill(path: Path, tasks: int = 3, size: int = 10) -> None:
    async with opened(path) as store:
        rows = [row_of(store, f"t{name}", context_id=f"c{name}") for name in range(tasks)]
        await asyncio.gather(*(create(store, row, notes=(Note(1, "request", b"r" * size),)) for row in rows))


async def ids(path: Path) -> set[str]:
    async with opened(path) as store:
        return {stored.row.id for stored in (await store.page(TaskQuery(SCOPE, limit=1_000_000))).tasks}


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def holes(path: Path) -> list[tuple[str, int, int]]:
    """The tasks whose journal is not exactly as long as their row says."""
    query = (
        "SELECT t.id, t.generation, count(e.generation) FROM tasks t LEFT JOIN events e ON e.task = t.number "
        "GROUP BY t.number HAVING count(e.generation) <> t.generation OR max(e.generation) <> t.generation"
    )
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


async def test_the_copy_is_a_store_with_everything_in_it(tmp_path: Path):
    async with opened(tmp_path / "t.db") as store:
        asked = await create(store, row_of(store, "a", origin="0.3"), notes=(Note(1, "request", b"r"),))
        asked = await append(store, asked, body("two"), snapshot=body("snapshot"))
        await create(store, row_of(store, "b", state=State.COMPLETED), context_state=b"s")
    done = backup(tmp_path)
    copy = tmp_path / "copy.db"
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"copy.db: 2 tasks, {copy.stat().st_size} bytes\n"
    async with opened(copy) as store:
        stored = await store.task("a")
        assert stored is not None
        assert stored[:3] == (asked, body("snapshot"), 2)
        assert [record.body for record in await store.records(asked.number, 0, ALL)] == [b"{}", body("two")]
        assert await store.notes(asked.number) == [Note(1, "request", b"r")]
        assert await store.context_state(SCOPE, "context") == b"s"
        assert (await store.page(TaskQuery(SCOPE))).total == 2
        assert store.next_number() > asked.number


async def test_the_copy_is_one_file_that_only_its_owner_can_read(tmp_path: Path):
    await fill(tmp_path / "t.db")
    (tmp_path / "to").mkdir()
    assert dragoman(tmp_path, "backup", "to/copy.db", "--store", "sqlite:///t.db", before="umask 0;").returncode == 0
    assert names(tmp_path / "to") == {"copy.db"}
    assert stat.S_IMODE((tmp_path / "to" / "copy.db").stat().st_mode) == 0o600


async def test_a_copy_made_while_a_server_writes_is_consistent_and_has_all_that_was_done_before(tmp_path: Path):
    async with opened(tmp_path / "t.db") as store:
        done: list[str] = []
        stop = asyncio.Event()

        async def work(worker: int) -> None:
            for number in count():
                row = await create(
                    store, row_of(store, f"{worker}-{number}", context_id=f"c{worker}"), joins_context=True
                )
                for _ in range(3):
                    row = await append(store, row, b"x" * 2000)
                done.append(row.id)
                if stop.is_set():
                    return
                await asyncio.sleep(0.02)  # a busy server, which leaves some of the processor to the copy

        workers = [asyncio.create_task(work(worker)) for worker in range(8)]
        copies_of_changes = 0
        while copies_of_changes < 3:  # a copy during which nobody got to write anything proves little
            before, copy = set(done), f"{secrets.token_hex(4)}.db"
            command = [*DRAGOMAN, "backup", copy, "--store", "sqlite:///t.db"]
            run = partial(subprocess.run, command, cwd=tmp_path, env=clean_environment(), check=True, timeout=30)
            await asyncio.to_thread(run)
            copies_of_changes += set(done) > before
            assert holes(tmp_path / copy) == []
            assert [one for one in examine(tmp_path / copy, full=True) if one.level == "FAIL"] == []
            assert await ids(tmp_path / copy) >= before
        stop.set()
        await asyncio.gather(*workers)
    assert await ids(tmp_path / "t.db") == set(done)


async def test_writes_between_two_steps_are_not_in_the_copy(tmp_path: Path):
    await fill(tmp_path / "t.db", tasks=100, size=3 * STEP_PAGES * 4096 // 100)
    async with opened(tmp_path / "t.db") as store:
        loop = asyncio.get_running_loop()
        written: list[str] = []

        def write_one(left: int, pages: int) -> None:
            row = row_of(store, f"late-{left}")
            asyncio.run_coroutine_threadsafe(create(store, row), loop).result(30)
            written.append(row.id)

        copied = await asyncio.to_thread(back_up, tmp_path / "t.db", tmp_path / "copy.db", progress=write_one)
        assert len(written) > 2
        assert copied.tasks == 100
    assert await ids(tmp_path / "copy.db") == {f"t{name}" for name in range(100)}
    assert await ids(tmp_path / "t.db") >= set(written)


def test_the_wal_of_a_killed_server_is_in_the_copy(tmp_path: Path):
    killed = subprocess.run(
        [sys.executable, "-c", KILLED], cwd=tmp_path, env=clean_environment(), timeout=30, check=False
    )
    assert (killed.returncode, (tmp_path / "t.db-wal").stat().st_size > 0) == (-signal.SIGKILL, True)
    assert backup(tmp_path).returncode == 0
    assert asyncio.run(ids(tmp_path / "copy.db")) == {"a"}


async def test_the_store_is_left_as_it_was(tmp_path: Path):
    await fill(tmp_path / "t.db")
    with closing(sqlite3.connect(tmp_path / "t.db")) as reader:
        reader.execute("SELECT 1 FROM tasks").fetchall()
        before = (tmp_path / "t.db").read_bytes()
        assert backup(tmp_path).returncode == 0
        assert (tmp_path / "t.db").read_bytes() == before


async def test_a_file_that_is_there_is_replaced_only_when_that_is_wanted(tmp_path: Path):
    await fill(tmp_path / "t.db")
    (tmp_path / "copy.db").write_text("precious")
    done = backup(tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "dragoman: copy.db is there already: use another name, or --force to replace it\n"
    assert (tmp_path / "copy.db").read_text() == "precious"
    assert backup(tmp_path, "--force").returncode == 0
    assert await ids(tmp_path / "copy.db") == {"t0", "t1", "t2"}


async def test_leftovers_of_an_interrupted_backup_are_replaced_only_with_force(tmp_path: Path):
    await fill(tmp_path / "t.db")
    (tmp_path / "copy.db.part").write_text("half")
    done = backup(tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("dragoman: copy.db.part is there: another backup is running, or one was interrupted")
    assert names(tmp_path) & {"copy.db", "copy.db.part"} == {"copy.db.part"}
    assert backup(tmp_path, "--force").returncode == 0
    assert names(tmp_path) & {"copy.db", "copy.db.part"} == {"copy.db"}


@pytest.mark.parametrize("suffix", ["", "-wal", ".lock", ".key"])
async def test_the_store_and_its_neighbors_are_never_replaced(tmp_path: Path, suffix: str):
    await fill(tmp_path / "t.db")
    done = dragoman(tmp_path, "backup", f"t.db{suffix}", "--store", "sqlite:///t.db", "--force")
    assert done.returncode == 2
    assert done.stderr == f"dragoman: t.db{suffix} belongs to the store itself: use another name\n"
    assert await ids(tmp_path / "t.db") == {"t0", "t1", "t2"}


async def test_a_store_whose_name_is_that_of_an_unfinished_copy_is_not_taken_for_one(tmp_path: Path):
    await fill(tmp_path / "copy.db.part")
    done = dragoman(tmp_path, "backup", "copy.db", "--store", "sqlite:///copy.db.part", "--force")
    assert (done.returncode, "belongs to the store itself" in done.stderr) == (2, True)
    assert await ids(tmp_path / "copy.db.part") == {"t0", "t1", "t2"}


async def test_a_database_in_use_is_not_replaced(tmp_path: Path):
    await fill(tmp_path / "t.db")
    async with opened(tmp_path / "copy.db") as store:
        await create(store, row_of(store, "theirs"))
        done = backup(tmp_path, "--force")
    assert done.returncode == 2
    assert done.stderr.startswith("dragoman: copy.db-wal is there, so copy.db is a database somebody uses")
    assert await ids(tmp_path / "copy.db") == {"theirs"}


@pytest.mark.parametrize(
    ("store", "says"),
    [
        ("memory:", "a store in memory cannot be backed up, because it only exists inside the server."),
        ("sqlite:///none.db", "there is no store none.db: name the one to copy with --store"),
        ("sqlite:///text.db", "text.db is not a store of Dragoman: use another --store"),
        ("sqlite:///empty.db", "empty.db is empty: there is nothing to copy until a server has used it"),
        ("sqlite:///other.db", "other.db is another program's database: use another --store"),
        ("sqlite:///newer.db", "newer.db was written by a newer Dragoman (schema 99"),
    ],
)
def test_a_store_that_cannot_be_backed_up_is_refused_with_what_to_do(tmp_path: Path, store: str, says: str):
    (tmp_path / "text.db").write_text("no database, but long enough to be taken for one\n" * 100)
    (tmp_path / "empty.db").touch()
    for name, version in (("other.db", 0), ("newer.db", 99)):
        with closing(sqlite3.connect(tmp_path / name)) as connection:
            connection.executescript(f"CREATE TABLE t (x); PRAGMA user_version = {version}")
    before = names(tmp_path)
    done = dragoman(tmp_path, "backup", "copy.db", "--store", store)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"dragoman: {says}")
    assert names(tmp_path) == before


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("no/copy.db", "no/copy.db: there is no folder no: make it first"),
        ("folder", "folder is a folder: name a file in it, as in folder/t.db"),
    ],
)
async def test_a_place_where_no_file_can_be_is_refused_with_what_to_do(tmp_path: Path, file: str, says: str):
    await fill(tmp_path / "t.db")
    (tmp_path / "folder").mkdir()
    done = dragoman(tmp_path, "backup", file, "--store", "sqlite:///t.db")
    assert (done.returncode, done.stderr) == (2, f"dragoman: {says}\n")


async def test_the_file_of_settings_says_which_store(tmp_path: Path):
    await fill(tmp_path / "t.db")
    (tmp_path / "dragoman.toml").write_text('[serve]\nstore = "sqlite:///t.db"\n')
    assert dragoman(tmp_path, "backup", "copy.db").stdout.startswith("copy.db: 3 tasks, ")


async def test_a_copy_that_cannot_be_finished_leaves_nothing_behind(tmp_path: Path):
    await fill(tmp_path / "t.db", tasks=100, size=10_000)
    before = names(tmp_path)
    done = backup(tmp_path, before="ulimit -f 500;")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("dragoman: the backup failed, copy.db is not written: ")
    assert names(tmp_path) - {"t.db-wal", "t.db-shm"} == before - {"t.db-wal", "t.db-shm"}


async def test_ctrl_c_leaves_nothing_behind(tmp_path: Path):
    def interrupt(left: int, pages: int) -> None:
        raise KeyboardInterrupt

    await fill(tmp_path / "t.db")
    with pytest.raises(KeyboardInterrupt):
        back_up(tmp_path / "t.db", tmp_path / "copy.db", progress=interrupt)
    assert not names(tmp_path) & {"copy.db", "copy.db.part", "copy.db.part-journal"}


async def test_the_later_of_two_forced_backups_to_one_file_is_kept_whole(tmp_path: Path):
    await fill(tmp_path / "t.db")
    source, target = tmp_path / "t.db", tmp_path / "copy.db"

    def overtake(left: int, pages: int) -> None:
        back_up(source, target, force=True)

    with pytest.raises(DragomanError, match=r"another backup to .*copy\.db was forced meanwhile"):
        back_up(source, target, force=True, progress=overtake)
    assert await ids(target) == {"t0", "t1", "t2"}
    assert "copy.db.part" not in names(tmp_path)


async def test_a_damaged_store_makes_no_copy(tmp_path: Path):
    await fill(tmp_path / "t.db", tasks=50, size=5000)
    with (tmp_path / "t.db").open("r+b") as file:
        file.seek(20 * 4096)
        file.write(b"\xff" * 4096 * 10)
    for leftover in ("t.db-wal", "t.db-shm"):
        (tmp_path / leftover).unlink(missing_ok=True)
    done = backup(tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "damaged" in done.stderr
    assert not names(tmp_path) & {"copy.db", "copy.db.part"}


async def test_a_copy_that_would_fill_the_disk_is_refused(tmp_path: Path):
    await fill(tmp_path / "t.db")
    with pytest.raises(DragomanError, match=r"free and the copy takes .* GB: make room, or name another folder"):
        check_space(shutil.disk_usage(tmp_path).total, tmp_path / "t.db", tmp_path)
    check_space(1, tmp_path / "t.db", tmp_path)
