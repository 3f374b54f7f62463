"""An MCP server of the handshake era in plain Python: starts at once, and misbehaves where an SDK would not let it.

`handshake_server.py FOLDER [WORD]...`: what its tools notice is left in files of FOLDER. The words: `dies` and `silent`
right at the start, `once` for one that starts only once, `alone` for one that does not start beside another, `stray`
lines on stdout, `few` tools only, `deep` for one more whose schema has 3,000 levels.
"""

from __future__ import annotations

import fcntl
import json
import os
import queue
import sys
import threading
from itertools import count
from pathlib import Path
from typing import Any

FOLDER, WORDS = Path(sys.argv[1]), sys.argv[2:]
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
ANYTHING: dict[str, Any] = {"type": "object"}
NUMBERS = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

_lock = threading.Lock()
_ids = count(1000)
_answers: dict[int, queue.Queue[Any]] = {}
_canceled: dict[Any, threading.Event] = {}
_go_on = threading.Event()


def say(message: dict[str, Any]) -> None:
    with _lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def say_raw(line: str) -> None:
    with _lock:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def note(name: str, text: str = "") -> None:
    with (FOLDER / name).open("a") as file:
        file.write(text + "\n")


class Refused(Exception):
    def __init__(self, code: int, data: Any = None) -> None:
        self.code, self.data = code, data


def text(reply: object, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": reply if isinstance(reply, str) else json.dumps(reply)}], **more}


class Calling:
    """One call of a tool."""

    def __init__(self, id: Any, params: dict[str, Any]) -> None:
        self.id = id
        self.arguments: dict[str, Any] = params.get("arguments") or {}
        self.meta: dict[str, Any] = params.get("_meta") or {}
        self.canceled = _canceled[id] = threading.Event()

    def ask(self, message: str, **form: Any) -> dict[str, Any]:
        number = next(_ids)
        answer = _answers[number] = queue.Queue()
        say({"id": number, "method": "elicitation/create", "params": {"message": message, **form}})
        return answer.get()

    def moved(self, done: float, total: float | None, message: str | None = None) -> None:
        params = {"progressToken": self.meta["progressToken"], "progress": done, "total": total, "message": message}
        say({"method": "notifications/progress", "params": {k: v for k, v in params.items() if v is not None}})

    # -- the tools -----------------------------------------------------------------------------------------------------

    def same(self) -> Any:
        return text({"arguments": self.arguments, "user": self.meta.get("dragoman/user")})

    def trace(self) -> Any:
        return text({name: self.meta[name] for name in ("traceparent", "tracestate", "baggage") if name in self.meta})

    def environment(self) -> Any:
        return text(dict(os.environ))

    def pid(self) -> Any:
        return text(str(os.getpid()))

    def fail(self) -> Any:
        return text("the disk is full", isError=True)

    def refuse(self) -> Any:
        raise Refused(self.arguments["n"])

    def nonsense(self) -> Any:
        return {"content": "this is no list"}

    def broken_promise(self) -> Any:
        return text("", structuredContent={"result": "no number"})

    def unreadable(self) -> Any:
        """Answer the call with a result that is written out here."""
        result, number = self.arguments["result"], json.dumps(self.id)
        if self.arguments.get("last"):  # as the SDK for TypeScript does
            say_raw(f'{{"result":{result},"jsonrpc":"2.0","id":{number}}}')
        else:
            say_raw(f'{{"jsonrpc":"2.0","id":{number},"result":{result}}}')

    def nameless(self) -> Any:
        say_raw('{"jsonrpc":"2.0","id":{}}')
        self.canceled.wait()

    def ask_unreadable(self) -> Any:
        answer = _answers[7] = queue.Queue()
        params = f'{{"message":"?","requestedSchema":{{"type":"object"}},"x":{self.arguments["value"]}}}'
        say_raw(f'{{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{params}}}')
        return text(answer.get()["error"]["message"], isError=True)

    def costly_promise(self) -> Any:
        return text("", structuredContent={"x": "a" * 79 + "!"})

    def wait(self) -> Any:
        note("begun")
        self.canceled.wait()
        note("canceled")

    def held(self) -> Any:
        note("begun")
        _go_on.wait()
        return text("held")

    def let_go(self) -> Any:
        _go_on.set()
        return text("let go")

    def ask_name(self) -> Any:
        label = self.arguments.get("label", "")
        reply = self.ask(f"Who is {label or 'it'}?", requestedSchema=FORM)
        note("answers", json.dumps(reply))
        content: dict[str, Any] = reply.get("content") or {}
        return text(f"{label}: {reply['action']} {content.get('name')}")

    def ask_late(self) -> Any:
        if self.arguments.get("quiet"):
            return text("quiet")
        self.held()
        return self.ask_name()

    def ask_at_signal(self) -> Any:
        self.wait_for_signal()
        return self.ask_name()

    def wait_for_signal(self) -> None:
        """Wait until somebody writes into the pipe."""
        note("begun")
        (FOLDER / "pipe").read_bytes()

    def ask_and_leave(self) -> Any:
        """Ask and return at once, in one write, as a tool with a thread may."""
        number = next(_ids)
        answer = _answers[number] = queue.Queue()
        form = {"message": "A secret?", "requestedSchema": FORM}
        asked = {"id": number, "method": "elicitation/create", "params": form}
        replies = (asked, {"id": self.id, "result": text("left")})
        say_raw("\n".join(json.dumps({"jsonrpc": "2.0", **each}) for each in replies))
        note("answers", json.dumps(answer.get()))

    def link(self) -> Any:
        """Return a link to a resource; the server asks when that is read."""
        return {"content": [{"type": "resource_link", "uri": "note://secret", "name": "secret"}]}

    def ask_and_ask_late(self) -> Any:
        first = threading.Thread(target=self.ask, args=("The first secret?",), kwargs={"requestedSchema": FORM})
        first.start()
        self.wait_for_signal()
        note("answers", json.dumps(self.ask("The second secret?", requestedSchema=FORM)))
        first.join()
        return text("done")

    def many_parts(self) -> Any:
        return {"content": [{"type": "text", "text": "x"}] * self.arguments["n"]}

    def long_line(self) -> Any:
        return text("x" * self.arguments["n"])

    def ask_twice(self) -> Any:
        names = [self.ask(f"Who is the {n}.?", requestedSchema=FORM)["content"]["name"] for n in (1, 2)]
        return text(" and ".join(names))

    def ask_at_once(self) -> Any:
        answers: list[Any] = [None, None]

        def one(n: int) -> None:
            answers[n] = self.ask(f"Who is the {n + 1}.?", requestedSchema=FORM)

        threads = [threading.Thread(target=one, args=(n,)) for n in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return text([each["content"]["name"] for each in answers])

    def sign_in(self) -> Any:
        url = "https://login.example.com/"
        reply = self.ask("Please sign in.", mode="url", url=url, elicitationId="1")
        return text(reply["action"])

    def needs_sign_in(self) -> Any:
        if self.arguments.get("never") or not (FOLDER / "signed-in").exists():
            note("signed-in")
            wanted = {
                "mode": "url",
                "message": "Sign in first.",
                "url": "https://login.example.com/",
                "elicitationId": "1",
            }
            raise Refused(-32042, {"elicitations": [wanted]})
        return text("you are in")

    def step(self) -> Any:
        for each in self.arguments["steps"]:
            self.moved(each, 10, "working")
        if self.arguments.get("wait"):
            note("begun")
            self.canceled.wait()
            note("canceled")
        return text("done")

    def stray(self) -> Any:
        with _lock:
            sys.stdout.write("Listening on port 3000…\n\n{not json\n" + '{"a": 1}\n')
        return text("done")

    def murmur(self) -> Any:
        print("a warning nobody asked for", file=sys.stderr, flush=True)
        return text("done")

    def die(self) -> Any:
        os._exit(3)

    def more(self) -> Any:
        TOOLS["late"] = ANYTHING
        say({"method": "notifications/tools/list_changed"})
        return text("done")

    late = pit = pid
    ask_safely = ask_name


TOOLS: dict[str, dict[str, Any]] = dict.fromkeys(
    (
        *(
            "pid",
            "same",
            "trace",
            "environment",
            "fail",
            "nonsense",
            "broken_promise",
            "wait",
            "held",
            "let_go",
            "ask_name",
        ),
        *(
            "ask_safely",
            "ask_at_signal",
            "ask_and_leave",
            "link",
            "ask_and_ask_late",
            "long_line",
            "many_parts",
            "costly_promise",
            "unreadable",
            "nameless",
            "ask_unreadable",
        ),
        *("ask_late", "ask_twice", "ask_at_once", "sign_in", "needs_sign_in", "step", "stray", "murmur", "die", "more"),
    ),
    ANYTHING,
) | {"refuse": NUMBERS}
EXTRA: dict[str, dict[str, Any]] = {
    "same": {"_meta": {"dragoman/user": True}},
    "held": {"annotations": {"idempotentHint": True}},
    "ask_safely": {"annotations": {"idempotentHint": True}},
    "broken_promise": {
        "outputSchema": {"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]}
    },
    # A backtracking engine would look for hours.
    "costly_promise": {
        "outputSchema": {"type": "object", "properties": {"x": {"type": "string", "pattern": f"^{'(a|aa)' * 40}$"}}}
    },
}


def call(id: Any, params: dict[str, Any]) -> None:
    calling = Calling(id, params)
    try:
        result = getattr(calling, params["name"])()
    except Refused as error:
        problem = {"code": error.code, "message": "the server will not", "data": error.data}
        say({"id": id, "error": {key: value for key, value in problem.items() if value is not None}})
        return
    except Exception as error:  # noqa: BLE001 - as an SDK would
        result = text(f"{type(error).__name__}: {error}", isError=True)
    if result is not None:
        say({"id": id, "result": result})


def read(id: Any, params: dict[str, Any]) -> None:
    note("answers", json.dumps(Calling(id, {}).ask("May I read it out?", requestedSchema=FORM)))
    say({"id": id, "result": {"contents": [{"uri": params["uri"], "text": "read"}]}})


def take(message: dict[str, Any]) -> None:
    method, number = message.get("method"), message.get("id")
    params: dict[str, Any] = message.get("params") or {}
    if method is None:
        _answers.pop(message["id"]).put(message.get("result", message))
    elif method == "initialize":
        capabilities = {"tools": {"listChanged": True}}
        info = {"name": "handshake", "version": "1"}
        known = {"protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": info}
        say({"id": number, "result": known})
    elif method == "tools/list":
        listed = TOOLS if "few" not in WORDS else {name: TOOLS[name] for name in ("pid", "more")}
        tools = [{"name": name, "inputSchema": schema, **EXTRA.get(name, {})} for name, schema in listed.items()]
        if "deep" not in WORDS:
            say({"id": number, "result": {"tools": tools}})
            return
        deep = '{"type":"object","properties":{"a":' * 3000 + '{"type":"string"}' + "}}" * 3000
        listed = json.dumps(tools)[:-1] + f', {{"name": "pit", "inputSchema": {deep}}}]'
        say_raw(f'{{"jsonrpc":"2.0","id":{json.dumps(number)},"result":{{"tools":{listed}}}}}')
    elif method == "tools/call":
        threading.Thread(target=call, args=(number, params), daemon=True).start()
    elif method == "resources/read":
        threading.Thread(target=read, args=(number, params), daemon=True).start()
    elif method == "notifications/cancelled":
        if (event := _canceled.get(params.get("requestId"))) is not None:
            event.set()
    elif number is not None:
        say({"id": number, "error": {"code": -32601, "message": "Method not found"}})


if __name__ == "__main__":
    note("started", str(os.getpid()))
    starts = len((FOLDER / "started").read_text().splitlines())
    lock = (FOLDER / "lock").open("a")
    if "alone" in WORDS:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("another one runs here", file=sys.stderr, flush=True)
            os._exit(1)
    if "stray" in WORDS:
        print("Welcome to the server!", flush=True)
    if "dies" in WORDS or ("once" in WORDS and starts > 1):
        print("starting up", "no license key found", sep="\n", file=sys.stderr, flush=True)
        os._exit(1)
    for line in sys.stdin:
        if "silent" not in WORDS:
            take(json.loads(line))
