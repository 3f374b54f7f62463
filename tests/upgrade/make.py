"""Makes what is in `made/`: a store with tasks in all states, and calls of clients with their responses.

    python tests/upgrade/make.py

Run it on the release that is to be kept, never on a later one: the point is that these files are old. First a real
server is filled by calls of every version, and killed. Then the same release opens a copy of the store, and answers the
calls that are recorded. Last, the store is moved to PostgreSQL with `dragoman migrate`, and dumped.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import postgres_server
from upgrade.calls import Call, RecordedCall, dump, normalized
from upgrade.play import settle
from upgrade.server import Receiver, copy_program, port_of, run_command, start_server

# The tasks that run when the server is killed.
RUNNING = ("working", "queued", "report")
MADE = Path(__file__).parent / "made"
SECRET = "dk1_" + "u" * 43
# Of the receiver of webhooks: the store has its URL.
PORT = 18723
PASSWORD = "pass word 123"
JSON = {"Content-Type": "application/json"}


class Filler:
    """Fills the store of a server by calls of all versions."""

    def __init__(self, port: int, receiver: str, key: str) -> None:
        self._port = port
        self._receiver = receiver
        self._key = key
        self.tasks: dict[str, str] = {}
        self.contexts: dict[str, str] = {}

    def fill(self) -> None:
        """Make tasks in every state."""
        self.send("greeting", "greet", {"name": "Ada"})
        self.send(
            "photo", "photo", parts=[file_part("note.txt", "text/plain", b"a note"), file_part("x.bin", "", b"\0\xff")]
        )
        for name in ("question", "question-rest", "question-0.3", "question-0.1", "parked"):
            self.send(name, "book")
        self.send("half-answered", "book")
        self.send("half-answered", "", task="half-answered", parts=[{"text": "Porto"}])
        self.send("visit", "visits", context="question")
        self.send("login", "log_in")
        self.send("login-canceled", "log_in")
        self.send("refused", "refuse")
        self.send("crashed", "crash")
        self.send("canceled", "wait", wait=False)
        self.rpc("CancelTask", {"id": self.tasks["canceled"]})
        self.send("delivered", "greet", push={"url": f"{self._receiver}/delivered", "token": "token-1"})
        bearer = {"scheme": "Bearer", "credentials": "credentials-2"}
        self.send("owed", "greet", push={"url": f"{self._receiver}/owed", "token": "token-2", "authentication": bearer})
        self.old(
            "old-0.3",
            "message/send",
            {"message": {**message_03("Hi"), "messageId": "m-03"}, "configuration": {"blocking": True}},
        )
        self.old(
            "old-0.1", "tasks/send", {"id": "task-of-a-client", "sessionId": "session-1", "message": message_01("Hi")}
        )
        self.send("sum", "add", {"a": 3, "b": 7}, path="/agents/tools/")
        self.send("capitals", "", parts=[{"text": "loud"}], path="/agents/upper/")
        self.send("working", "wait", wait=False)
        self.send("queued", "greet", context="working", wait=False)
        self.send("report", "report", wait=False)

    def fill_tool_server(self, cookie: str) -> None:
        """Make a task with a row in the table of tool servers."""
        data = {"type": "data", "data": {"tool": "add", "arguments": {"a": 20, "b": 22}}}
        params = {"message": {"role": "user", "parts": [{"type": "text", "text": "Add"}, data]}}
        headers = {**JSON, "Cookie": f"user={cookie}"}
        task = self._call(Call("", "POST", "/agents/tools/a2a", headers, rpc_body("tasks/send", params)))["result"]
        self.tasks["row"] = task["id"]

    def send(
        self,
        name: str,
        skill: str,
        arguments: dict[str, Any] | None = None,
        *,
        parts: list[Any] | None = None,
        context: str = "",
        task: str = "",
        push: dict[str, Any] | None = None,
        wait: bool = True,
        path: str = "/",
    ) -> None:
        """Send a message of 1.0, and keep the ids of its task."""
        data = [{"data": {"tool": skill, "arguments": arguments or {}}}] if skill and parts is None else []
        message: dict[str, Any] = {"messageId": f"m-{name}", "role": "ROLE_USER", "parts": [*data, *(parts or [])]}
        if parts is not None and skill:
            message["metadata"] = {"skillId": skill}
        if context:
            message["contextId"] = self.contexts[context]
        if task:
            message["taskId"] = self.tasks[task]
        configuration: dict[str, Any] = {"returnImmediately": not wait}
        if push is not None:
            configuration["taskPushNotificationConfig"] = push
        sent = self.rpc("SendMessage", {"message": message, "configuration": configuration}, path)["task"]
        self.tasks[name], self.contexts[name] = sent["id"], sent["contextId"]

    def old(self, name: str, method: str, params: dict[str, Any]) -> None:
        """Send a message of an older version."""
        task = self.rpc(method, params)
        self.tasks[name], self.contexts[name] = task["id"], task.get("contextId") or task["sessionId"]

    def rpc(self, method: str, params: dict[str, Any], path: str = "/") -> Any:
        """Call a method."""
        headers = {**JSON, "Authorization": f"Bearer {self._key}"}
        answer = self._call(Call("", "POST", path, headers, rpc_body(method, params)))
        assert "result" in answer, (method, params, answer)
        return answer["result"]

    def _call(self, call: Call) -> Any:
        return json.loads(call.send(self._port).body)


class Client:
    """Makes the calls that are recorded: of all versions, on the tasks of the store and on new ones."""

    def __init__(self, tasks: dict[str, str], contexts: dict[str, str], key: str) -> None:
        self._tasks = tasks
        self._contexts = contexts
        self._key = {"Authorization": f"Bearer {key}"}

    def calls(self) -> Iterator[Call]:
        """In this order: reads, then answers and new tasks, then what is refused."""
        yield from self._cards()
        yield from self._reads()
        yield from self._resumed_streams()
        yield from self._answers()
        yield from self._new_tasks()
        yield from self._tool_server()
        yield from self._refusals()

    def _rpc(self, name: str, method: str, params: Any, version: str = "", **options: Any) -> Call:
        headers = {**JSON, **self._key, **({"A2A-Version": version} if version else {}), **options.get("headers", {})}
        return Call(name, "POST", options.get("path", "/"), headers, rpc_body(method, params))

    def _rest(self, name: str, method: str, path: str, body: Any = None, **headers: str) -> Call:
        kind = JSON if body is not None else {}
        return Call(name, method, path, {**kind, **self._key, **headers}, "" if body is None else json.dumps(body))

    def _cards(self) -> Iterator[Call]:
        yield Call("the public card", "GET", "/.well-known/agent-card.json", {})
        yield Call("the card of 0.1", "GET", "/agents/tools/.well-known/agent.json", {})
        yield Call("the card of tools, signed in", "GET", "/agents/tools/.well-known/agent-card.json", self._key)
        yield Call("the list of agents", "GET", "/agents", {})
        yield self._rpc("the extended card", "GetExtendedAgentCard", {}, "1.0")
        yield self._rpc("the extended card of 0.3", "agent/getAuthenticatedExtendedCard", {})

    def _reads(self) -> Iterator[Call]:
        for name, task in self._tasks.items():
            if name == "row":
                continue
            path = {"sum": "/agents/tools/", "capitals": "/agents/upper/"}.get(name, "/")
            yield self._rpc(f"{name}, 1.0", "GetTask", {"id": task}, "1.0", path=path)
            yield self._rpc(f"{name}, 1.1", "GetTask", {"id": task, "historyLength": 1}, "1.1", path=path)
            yield self._rpc(f"{name}, tasks/get", "tasks/get", {"id": task}, path=path)
            yield self._rest(f"{name}, HTTP+JSON 1.0", "GET", f"{path}tasks/{task}")
            yield self._rest(f"{name}, HTTP+JSON 0.3", "GET", f"{path}v1/tasks/{task}")
        for name in ("question", "working"):
            context = self._contexts[name]
            yield self._rpc(f"the tasks beside {name}", "ListTasks", {"contextId": context, "pageSize": 1}, "1.0")
        yield self._rest("tasks that wait", "GET", "/tasks?status=TASK_STATE_INPUT_REQUIRED&includeArtifacts=true")
        for name in ("delivered", "owed"):
            yield self._rpc(
                f"webhooks of {name}", "ListTaskPushNotificationConfigs", {"taskId": self._tasks[name]}, "1.0"
            )
            yield self._rpc(f"webhooks of {name}, 0.3", "tasks/pushNotificationConfig/list", {"id": self._tasks[name]})

    def _resumed_streams(self) -> Iterator[Call]:
        for name in ("greeting", "photo", "canceled"):
            task = {"id": self._tasks[name]}
            for last in ("0", "2"):
                headers = {"Last-Event-ID": last}
                yield self._rpc(f"{name} after {last}, 1.0", "SubscribeToTask", task, "1.0", headers=headers)
                yield self._rpc(f"{name} after {last}, 1.1", "SubscribeToTask", task, "1.1", headers=headers)
                yield self._rpc(f"{name} after {last}, 0.3", "tasks/resubscribe", task, headers=headers)
                path = f"tasks/{task['id']}:subscribe"
                yield self._rest(f"{name} after {last}, HTTP+JSON 1.0", "GET", f"/{path}", **headers)
                yield self._rest(f"{name} after {last}, HTTP+JSON 0.3", "GET", f"/v1/{path}", **headers)
        task = {"id": self._tasks["old-0.1"]}
        yield self._rpc("old-0.1 after 1", "tasks/resubscribe", task, headers={"Last-Event-ID": "1"})
        yield self._rpc("an ended task without Last-Event-ID", "SubscribeToTask", task, "1.0")

    def _answers(self) -> Iterator[Call]:
        task = self._tasks["question"]
        yield self._rpc("question, first answer", "SendMessage", {"message": message_10("Porto", taskId=task)})
        yield self._rpc("question, second answer", "SendStreamingMessage", {"message": message_10("2", taskId=task)})
        task = self._tasks["question-rest"]
        yield self._rest(
            "question-rest, first answer", "POST", "/message:send", {"message": message_10("Faro", taskId=task)}
        )
        yield self._rest(
            "question-rest, second answer", "POST", "/message:stream", {"message": message_10("1", taskId=task)}
        )
        task, blocking = self._tasks["question-0.3"], {"blocking": True}
        message = {**message_03("Braga", taskId=task), "messageId": "a-1"}
        yield self._rpc("question-0.3, first answer", "message/send", {"message": message, "configuration": blocking})
        message = {**message_03("3", taskId=task), "messageId": "a-2"}
        yield self._rpc("question-0.3, second answer", "message/stream", {"message": message})
        task = self._tasks["question-0.1"]
        yield self._rpc("question-0.1, first answer", "tasks/send", {"id": task, "message": message_01("Évora")})
        yield self._rpc("question-0.1, second answer", "tasks/sendSubscribe", {"id": task, "message": message_01("4")})
        task = self._tasks["half-answered"]
        yield self._rpc(
            "half-answered, answer that is no number", "SendMessage", {"message": message_10("many", taskId=task)}
        )
        yield self._rpc("half-answered, answer", "SendMessage", {"message": message_10("5", taskId=task)}, "1.1")
        task = self._tasks["login"]
        yield self._rpc("a message during a login", "SendMessage", {"message": message_10("hurry", taskId=task)})
        yield self._rpc("a login is canceled", "CancelTask", {"id": self._tasks["login-canceled"]})
        message = message_10("", contextId=self._contexts["question"], parts=[tool("visits")])
        yield self._rpc("the state of a conversation", "SendMessage", {"message": message})

    def _new_tasks(self) -> Iterator[Call]:
        greet = tool("greet", name="Bo")
        for version in ("1.0", "1.1"):
            message = message_10("", parts=[greet])
            yield self._rpc(f"send, {version}", "SendMessage", {"message": message}, version)
            yield self._rpc(f"stream, {version}", "SendStreamingMessage", {"message": message}, version)
            yield self._rest(
                f"send, HTTP+JSON {version}", "POST", "/message:send", {"message": message}, **{"A2A-Version": version}
            )
            yield self._rest(
                f"stream, HTTP+JSON {version}",
                "POST",
                "/message:stream",
                {"message": message},
                **{"A2A-Version": version},
            )
        message = {**message_03("Hi"), "messageId": "n-1"}
        yield self._rpc("send, 0.3", "message/send", {"message": message, "configuration": {"blocking": True}})
        yield self._rpc("stream, 0.3", "message/stream", {"message": message})
        # 0.2 has no `kind` on the parts of some clients, and `type` in its place.
        older = {"role": "user", "messageId": "n-2", "parts": [{"type": "text", "text": "Hi"}]}
        yield self._rpc("send, 0.2", "message/send", {"message": older, "configuration": {"blocking": True}})
        protobuf = {"role": "ROLE_USER", "messageId": "n-3", "content": [{"text": "Hi"}]}
        yield self._rest(
            "send, HTTP+JSON 0.3",
            "POST",
            "/v1/message:send",
            {"message": protobuf, "configuration": {"blocking": True}},
        )
        yield self._rest("stream, HTTP+JSON 0.3", "POST", "/v1/message:stream", {"message": protobuf})
        yield self._rpc("send, 0.1", "tasks/send", {"id": "new-1", "message": message_01("Hi")})
        yield self._rpc("stream, 0.1", "tasks/sendSubscribe", {"id": "new-2", "message": message_01("Hi")})
        yield self._rpc(
            "a file",
            "SendMessage",
            {
                "message": message_10(
                    "", parts=[file_part("a.txt", "text/plain", b"abc")], metadata={"skillId": "photo"}
                )
            },
        )
        yield self._rpc("a program", "SendMessage", {"message": message_10("quiet")}, path="/agents/upper/")
        yield self._rpc("a tool", "SendMessage", {"message": message_10("quiet")}, path="/agents/tools/")

    def _tool_server(self) -> Iterator[Call]:
        headers = {**JSON, "Cookie": "user={cookie}"}
        sums = {"type": "data", "data": {"tool": "add", "arguments": {"a": 1, "b": 1}}}
        message = {"role": "user", "parts": [{"type": "text", "text": "Add"}, sums]}
        for method, params in (
            ("tasks/get", {"id": self._tasks["row"]}),
            ("tasks/send", {"message": message}),
            ("tasks/cancel", {"id": self._tasks["row"]}),
            ("tasks/get", {"id": self._tasks["row"]}),
        ):
            yield Call(f"{method} of a tool server", "POST", "/agents/tools/a2a", headers, rpc_body(method, params))

    def _refusals(self) -> Iterator[Call]:
        greet = {"message": message_10("Hi")}
        yield Call("nobody", "POST", "/", JSON, rpc_body("SendMessage", greet))
        yield Call(
            "a wrong key", "POST", "/", {**JSON, "Authorization": "Bearer dk_wrong"}, rpc_body("GetTask", {"id": "x"})
        )
        basic = base64.b64encode(f"bob:{PASSWORD}".encode()).decode()
        yield Call(
            "a password", "POST", "/", {**JSON, "Authorization": f"Basic {basic}"}, rpc_body("SendMessage", greet)
        )
        task = {"id": self._tasks["greeting"]}
        yield Call(
            "a task of another user",
            "POST",
            "/",
            {**JSON, "Authorization": f"Basic {basic}"},
            rpc_body("GetTask", task),
        )
        message = message_10("", parts=[tool("audit")])
        yield self._rpc("a skill with a permission", "SendMessage", {"message": message})
        yield Call(
            "a skill without the permission",
            "POST",
            "/",
            {**JSON, "Authorization": f"Basic {basic}"},
            rpc_body("SendMessage", {"message": message}),
        )
        yield self._rpc("an unknown task", "GetTask", {"id": "00000000-0000-4000-8000-000000000000"}, "1.0")
        yield self._rpc("an unknown method", "SendLetter", {})
        yield self._rpc("an unknown version", "SendMessage", greet, "7.0")
        yield self._rpc("no message", "SendMessage", {})
        yield self._rpc("an ended task is canceled", "CancelTask", task, "1.0")
        yield self._rpc("an ended task is canceled, 0.3", "tasks/cancel", task)
        yield self._rest("an ended task is canceled, HTTP+JSON", "POST", f"/tasks/{task['id']}:cancel", {})
        yield self._rpc("a message to an ended task", "SendMessage", {"message": message_10("more", taskId=task["id"])})
        parts = [{"text": str(number)} for number in range(6)]
        yield self._rpc("too many parts", "SendMessage", {"message": message_10("", parts=parts)})
        yield self._rpc("a body too large", "SendMessage", {"message": message_10("x" * 20_001)})
        nested: Any = "deep"
        for _ in range(25):
            nested = [nested]
        yield self._rpc("too deep", "SendMessage", {"message": message_10("", parts=[{"data": nested}])})
        yield Call("not JSON", "POST", "/", {**JSON, **self._key}, "{")
        yield Call("no content type", "POST", "/", self._key, rpc_body("GetTask", task))
        yield Call("the console", "GET", "/", {})
        yield Call(
            "a page of another site",
            "POST",
            "/",
            {**JSON, **self._key, "Origin": "https://page.example"},
            rpc_body("GetTask", task),
        )


def rpc_body(method: str, params: Any) -> str:
    """A JSON-RPC request."""
    return json.dumps({"jsonrpc": "2.0", "id": "c-1", "method": method, "params": params}, ensure_ascii=False)


def message_10(text: str, **fields: Any) -> dict[str, Any]:
    """A message of 1.0."""
    return {"messageId": "n-0", "role": "ROLE_USER", "parts": [{"text": text}], **fields}


def message_03(text: str, **fields: Any) -> dict[str, Any]:
    """A message of 0.3, without its id."""
    return {"kind": "message", "role": "user", "parts": [{"kind": "text", "text": text}], **fields}


def message_01(text: str) -> dict[str, Any]:
    """A message of 0.1."""
    return {"role": "user", "parts": [{"type": "text", "text": text}]}


def tool(skill: str, **arguments: Any) -> dict[str, Any]:
    """The part that calls a skill."""
    return {"data": {"tool": skill, "arguments": arguments}}


def file_part(name: str, media_type: str, content: bytes) -> dict[str, Any]:
    """A file in a message of 1.0."""
    kind = {"mediaType": media_type} if media_type else {}
    return {"raw": base64.b64encode(content).decode(), "filename": name, **kind}


def until(condition: Callable[[], bool]) -> None:
    """Wait until something is in the file."""
    ends = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.05)


def add_users(folder: Path) -> str:
    """Add users, one of them without access. Returns the key of ann."""
    for name in ("ann", "eve"):
        run_command(folder, "users", "add", name, "--no-password")
    run_command(folder, "users", "add", "bob", "--password-stdin", text=PASSWORD)
    run_command(folder, "users", "grant", "ann", "admin")
    run_command(folder, "users", "revoke", "eve")
    return run_command(folder, "users", "key", "ann").strip()


def fill(folder: Path, receiver: Receiver) -> tuple[Filler, str]:
    """Fill a store, and kill its server."""
    copy_program(folder)
    with start_server(folder) as server:
        key = add_users(folder)
        filler = Filler(port_of(server), f"http://127.0.0.1:{receiver.port}", key)
        filler.fill()
        filler.fill_tool_server(run_command(folder, "users", "cookie", "ann").strip())
        receiver.wait_end("/delivered")

        def is_written() -> bool:
            states = "SELECT count(*) FROM tasks WHERE state = 2"
            with closing(sqlite3.connect(f"file:{folder / 'tasks.db'}?mode=ro", uri=True)) as file:
                owed = file.execute("SELECT count(*) FROM pushes WHERE tries > 0").fetchone()[0]
                return file.execute(states).fetchone()[0] == 2 and owed == 1

        until(is_written)
        server.kill()
    with closing(sqlite3.connect(folder / "tasks.db")) as file:
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return filler, key


def record(folder: Path, filler: Filler, key: str) -> list[RecordedCall]:
    """Open a copy of the store with this release, and record the calls."""
    copy_program(folder)
    for name in ("tasks.db", "tasks.db.key"):
        shutil.copy(MADE / name, folder / name)
    (folder / "tasks.db.key").chmod(0o600)
    (folder / "go").touch()
    stored = (MADE / "tasks.db").read_bytes()
    with start_server(folder) as server:
        cookie = run_command(folder, "users", "cookie", "ann").strip()
        settle(port_of(server), key, [filler.tasks[name] for name in RUNNING])
        calls = Client(filler.tasks, filler.contexts, key).calls()
        return [RecordedCall(call, normalized(call.send(port_of(server), cookie), stored)) for call in calls]


def dump_postgres(folder: Path) -> str:
    """Move a copy of the store to PostgreSQL with this release, and dump that."""
    copy_program(folder)
    for name in ("tasks.db", "tasks.db.key"):
        shutil.copy(MADE / name, folder / name)
    (folder / "tasks.db.key").chmod(0o600)
    server = postgres_server.PostgresServer(Path(tempfile.mkdtemp(prefix="upgrade-")))
    server.start()
    try:
        run_command(folder, "migrate", "tasks.db", server.url(), DRAGOMAN_SECRET=SECRET)
        text = server.program("pg_dump", "--inserts", "--no-owner", "--no-privileges", "--no-comments", server.url())
        text = re.sub(r"(?m)^SET (transaction|idle_in_transaction_session)_timeout.*\n", "", text)
    finally:
        server.stop()
    # Commands of psql, which other clients do not know.
    return re.sub(r"(?m)^(\\|--).*\n", "", re.sub(r"\n{2,}", "\n", text))


def main() -> None:
    """Make all of it."""
    MADE.mkdir(exist_ok=True)
    commit = subprocess.run(
        ["git", "log", "-1", "--format=%h", "--", "src"], cwd=MADE, check=True, capture_output=True, text=True
    ).stdout.strip()
    receiver = Receiver(PORT, accepts_owed=False)
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        filler, key = fill(Path(first), receiver)
        receiver.close()
        for name in ("tasks.db", "tasks.db.key"):
            shutil.copy(Path(first) / name, MADE / name)
        facts = {"commit": commit, "key": key, "password": PASSWORD, "secret": SECRET, "receiver": receiver.port}
        lines = [f"{name} = {json.dumps(value)}" for name, value in facts.items()]
        tasks = [f"{json.dumps(name)} = {json.dumps(task)}" for name, task in filler.tasks.items()]
        (MADE / "facts.toml").write_text("\n".join([*lines, "", "[tasks]", *tasks, ""]))
        (MADE / "calls.json").write_text(dump(record(Path(second), filler, key)), encoding="utf-8")
    with tempfile.TemporaryDirectory() as third:
        (MADE / "postgres.sql").write_text(dump_postgres(Path(third)), encoding="utf-8")


if __name__ == "__main__":
    main()
