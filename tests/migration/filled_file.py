"""A SQLite store with everything that a store can have, made by a real server and copied while that server works."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from migration.travel import LATER, build_agent

from dragoman import Client
from dragoman.auth.inbound.passwords import key_digest, new_key, new_password
from dragoman.compat.tool_server.rows import A2A_TASKS
from dragoman.model.state import State
from dragoman.model.task import Task
from dragoman.stores.sqlite.admin.backup import back_up
from dragoman.stores.sqlite.admin.users import SqliteUsers
from dragoman.stores.sqlite.store import SqliteStore
from dragoman.testing import served

SECONDS = 30
# Rows of a plug-in that servers have, and a table of one that is not installed any more.
PLUGIN = """
INSERT INTO a2a_tasks VALUES (17, 5, 1, 'working', '[]', NULL), (123456789012345678, 6, 2, NULL, '["\u0142"]', '[]');
CREATE TABLE mileage (task INTEGER PRIMARY KEY, miles INTEGER NOT NULL, note TEXT);
CREATE INDEX mileage_of ON mileage (miles);
INSERT INTO mileage VALUES (-1, 3000000000, 'far'), (2, 0, NULL);
"""


class FilledFile(NamedTuple):
    """The file, and what is known about some of its tasks: their ids by name, and what was sent.

    `messages` are the ids of messages that were accepted; `key` is an API key of the user ann.
    """

    path: Path
    tasks: dict[str, Task]
    messages: dict[str, str]
    key: str


async def fill_file(folder: Path, receiver: str, *, greetings: int = 40, large: int = 1_500_000) -> FilledFile:
    """Make a file. `receiver` is the URL of webhooks that nobody answers yet."""
    live = folder / "live.db"
    settings: dict[str, Any] = {
        "store": f"sqlite:///{live}",
        "push_allow": "127.0.0.1",
        "reply_within": 600,
        "drain": 0,
    }
    tasks: dict[str, Task] = {}
    messages = {name: str(uuid4()) for name in ("greeting", "bare", "draft")}
    store = SqliteStore(live)
    store.add_table(A2A_TASKS)
    await store.open()
    await store.close()
    with served(build_agent(), **settings) as url:
        async with Client(url) as client:

            async def start(name: str, tool: str, until: State, **options: Any) -> Task:
                waits = until.final or until.waiting
                task = await client.send(tool=tool, wait=waits, **options)
                assert isinstance(task, Task)
                await reaches(live, task.id, until)
                tasks[name] = task
                return task

            await asyncio.gather(*(client.send(tool="greet", arguments={"name": f"n{i}"}) for i in range(greetings)))
            await start("greeting", "greet", State.COMPLETED, message_id=messages["greeting"])
            first = await start("question", "book", State.INPUT_REQUIRED)
            await start("beside", "greet", State.COMPLETED, context=first)
            answered = await start("answered", "book", State.INPUT_REQUIRED)
            await client.send("Porto", task=answered)
            await start("login", "log_in", State.AUTH_REQUIRED)
            await start("refused", "refuse", State.REJECTED)
            await start("crashed", "crash", State.FAILED)
            canceled = await start("canceled", "wait", State.WORKING)
            await client.cancel_task(canceled)
            await start("large", "large", State.COMPLETED, arguments={"size": large})
            await start("odd", "odd", State.COMPLETED, push=f"{receiver}/done")
            working = await start("working", "wait", State.WORKING)
            await start("queued", "greet", State.SUBMITTED, context=working)
            await start("report", "report", State.WORKING)
            await client.create_push_config(
                first, f"{receiver}/question", id="p", token="secret token", auth=("Bearer", "secret credentials")
            )
            await client.send(tool="reply", arguments={"text": "now"}, message_id=messages["bare"])
            draft = asyncio.ensure_future(
                client.send(tool="reply", arguments={"text": "later"}, message_id=messages["draft"])
            )
            await until_true(lambda: read(live, "SELECT count(*) FROM drafts") == [(1,)])
            await until_true(lambda: read(live, "SELECT count(*) FROM pushes WHERE tries > 0") == [(1,)])
            key = add_users(live)
            path = folder / "tasks.db"
            back_up(live, path)
            (folder / "tasks.db.key").write_text((folder / "live.db.key").read_text())
            (folder / "tasks.db.key").chmod(0o600)
            with LATER.opened():
                await draft
    with closing(sqlite3.connect(path)) as file:
        file.executescript(PLUGIN)
        # Servers refuse such ids: a file may have them from elsewhere.
        file.execute("UPDATE tasks SET context_id = ? WHERE id = ?", ("with\0NUL", tasks["odd"].id))
        file.commit()
    return FilledFile(path, tasks, messages, key)


def add_users(path: Path) -> str:
    """Add users with permissions and keys, one of them revoked. Returns a key of ann."""
    users = SqliteUsers(path)
    key = new_key()
    for name in ("ann", "bob", "eve"):
        users.add(name, new_password("password") if name == "bob" else "", ("admin", "book"))
    users.grant("ann", "fly", 3600)
    users.add_key("ann", key_digest(key), key[-4:], 3600)
    users.add_key("ann", key_digest(new_key()), "abcd")
    users.revoke("eve")
    return key


async def reaches(path: Path, task_id: str, state: State) -> None:
    numbers = {State.SUBMITTED: 1, State.WORKING: 2}
    if state in numbers:
        query = f"SELECT state FROM tasks WHERE id = '{task_id}'"
        await until_true(lambda: read(path, query) == [(numbers[state],)])


async def until_true(condition: Callable[[], bool]) -> None:
    """Wait until something is in the file."""
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110 - another process or thread writes the file
            await asyncio.sleep(0.01)


def read(path: Path, query: str) -> list[Any]:
    """Rows of the file."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as file:
        return file.execute(query).fetchall()
