"""What agents say never commands a terminal, in whatever place it stands."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dragoman.cli
from dragoman.testing import served

# OSC 52 writes to the clipboard; the second has a C1 form of the same, then marks that turn the direction of a line.
EVIL = "\x1b]52;c;ZXZpbA==\x07 \x9d52;c;ZXZpbA==\x9c \x9b31m \x7f \u202e\u2066\u200e\u200f\u061c \u2028\u2029 \x08\r"
COMMANDS = set(EVIL) - set(" ;5231]mcZXpbA=\x1b\r")


def task(state: str = "TASK_STATE_COMPLETED") -> dict[str, Any]:
    message = {"messageId": EVIL, "role": "ROLE_AGENT", "parts": [{"text": f"status {EVIL}"}]}
    return {
        "id": f"task{EVIL}",
        "contextId": f"context{EVIL}",
        "status": {"state": state, "message": message, "timestamp": f"2026-01-01{EVIL}"},
        "artifacts": [
            {
                "artifactId": f"a{EVIL}",
                "parts": [
                    {"text": f"text {EVIL}"},
                    {"data": {f"key{EVIL}": [f"value{EVIL}"]}},
                    {"url": f"http://127.0.0.1/{EVIL}", "filename": f"name{EVIL}", "mediaType": f"text/{EVIL}"},
                ],
            }
        ],
        "history": [{"messageId": "1", "role": "ROLE_USER", "parts": [{"text": f"said {EVIL}"}]}],
    }


def card(url: str) -> dict[str, Any]:
    return {
        "name": f"name {EVIL}",
        "description": f"described {EVIL}",
        "version": f"1{EVIL}",
        "provider": {"organization": EVIL, "url": EVIL},
        "documentationUrl": EVIL,
        "supportedInterfaces": [{"url": f"{url}/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "capabilities": {"streaming": False, "extensions": [{"uri": EVIL}]},
        "defaultInputModes": [EVIL],
        "defaultOutputModes": [EVIL],
        "skills": [{"id": EVIL, "name": EVIL, "description": EVIL, "tags": [EVIL], "examples": [EVIL]}],
    }


async def hostile(scope: Any, receive: Callable[..., Any], send: Callable[..., Any]) -> None:
    """An agent that puts escapes wherever a text may stand."""
    if scope["type"] != "http":
        return
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    host = dict(scope["headers"])[b"host"].decode()
    if scope["method"] == "GET":
        answer: Any = card(f"http://{host}")
    else:
        asked = json.loads(body)
        results: dict[str, Any] = {
            "SendMessage": {"task": task()},
            "GetTask": task(),
            "CancelTask": task("TASK_STATE_CANCELED"),
            "ListTasks": {"tasks": [task()], "nextPageToken": "", "pageSize": 1, "totalSize": 1},
        }
        answer = {"jsonrpc": "2.0", "id": asked["id"]}
        if asked["params"].get("id") == "wrong":
            answer["error"] = {"code": -32001, "message": f"no {EVIL}"}
        else:
            answer["result"] = results[asked["method"]]
    data = json.dumps(answer).encode()
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]},
    )
    await send({"type": "http.response.body", "body": data})


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(hostile) as url:
        yield url


@pytest.mark.parametrize(
    "command",
    [
        "send URL hello",
        "send URL hello --no-wait",
        "send URL hello --json",
        "send URL hello --wire",
        "get URL t",
        "get URL t --json",
        "get URL wrong",
        "cancel URL t",
        "tasks URL",
        "card URL",
        "card URL --validate",
        "card URL --json",
        "doctor URL",
    ],
)
def test_no_word_of_an_agent_commands_the_terminal(terminal: Callable[..., Any], url: str, command: str) -> None:
    _, screen = terminal(*command.replace("URL", url).split(), NO_COLOR="1").ended()
    assert screen
    assert not COMMANDS & set(screen)
    assert "\x1b]" not in screen
    assert "\x1b" not in screen.replace("\r\x1b[K", "")


@pytest.mark.parametrize("command", ["send URL hello", "get URL t"])
def test_markdown_does_not_command_it_either(terminal: Callable[..., Any], url: str, command: str) -> None:
    _, screen = terminal(*command.replace("URL", url).split()).ended()
    assert not COMMANDS & set(screen)
    # Styles, and the cursor that goes back to where a block began.
    assert "\x1b" not in re.sub(r"\x1b\[[0-9;]*m|\r\x1b\[[JK]|\x1b\[[0-9]+A", "", screen)


def test_an_id_with_escapes_is_spelled_out_on_a_terminal(terminal: Callable[..., Any], url: str) -> None:
    _, screen = terminal("send", url, "hello", "--no-wait").ended()
    assert screen.startswith(r"task\x1b]52;c;ZXZpbA==\x07 \x9d52")


def test_json_has_escapes_for_controls_and_the_same_value(run: Callable[..., Any], url: str) -> None:
    done: subprocess.CompletedProcess[str] = run("get", url, "t", "--json")
    assert not (COMMANDS | {"\x1b"}) & set(done.stdout)
    found = json.loads(done.stdout)
    assert found["id"] == f"task{EVIL}"
    assert found["artifacts"][0]["parts"][1]["data"] == {f"key{EVIL}": [f"value{EVIL}"]}


def test_a_text_in_a_pipe_is_the_agents_as_it_is_and_stderr_is_clean(run: Callable[..., Any], url: str) -> None:
    done: subprocess.CompletedProcess[str] = run("get", url, "t")
    # Text mode makes line ends of the CR.
    assert done.stdout.startswith(f"text {EVIL}".replace("\r", "\n"))
    assert not (COMMANDS | {"\x1b"}) & set(done.stderr)


def test_a_misspelt_verb_is_repeated_without_control_characters(run: Callable[..., Any]) -> None:
    done: subprocess.CompletedProcess[str] = run(f"verb{EVIL}")
    assert done.returncode == 2
    assert "verb" in done.stderr
    assert not (COMMANDS | {"\x1b"}) & set(done.stderr)


def test_a_line_to_paste_quotes_the_id_of_an_agent() -> None:
    from dragoman.cli.remote.session import CommandSession, parse_options

    shared = {
        "headers": (),
        "token_env": None,
        **dict.fromkeys(("protocol", "transport", "timeout", "reconnect", "limits_remote_bytes")),
    }
    options = parse_options("http://127.0.0.1:1", {**shared, "as_json": False, "wire": False, "insecure": False})
    with CommandSession(options) as session:
        assert session.command_line("watch", "x; rm -rf ~") == "dragoman watch http://127.0.0.1:1 'x; rm -rf ~'"


# -- no other way out ------------------------------------------------------------------------------------------------

WRITERS = {"echo", "secho", "print", "write", "writelines", "echo_via_pager", "prompt", "confirm", "input"}


def calls(tree: ast.AST) -> Iterator[tuple[ast.Call, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            if name in WRITERS:
                yield node, ast.unparse(function)


def is_ours(node: ast.Call) -> bool:
    """True when nothing but words of this program are written."""
    return all(isinstance(each, ast.Constant) for each in (*node.args, *(word.value for word in node.keywords)))


def test_nothing_is_written_but_by_the_one_function_that_cleans() -> None:
    folder = Path(dragoman.cli.__file__).parent
    # `print` are methods of ours, a prompt of `chat` is escaped. History, consoles and what `init` makes are files.
    allowed = {("chat.py", "self._printer.print"), ("conversation.py", "printer.print")}
    # What rich renders is caught, not written.
    allowed |= {("markdown.py", "console.print"), ("view.py", "self._console.print")}
    allowed |= {("prompt.py", "input"), ("history.py", "file.writelines"), ("printing.py", "click.echo")}
    allowed |= {("command.py", "template.write"), ("command.py", "opened.write"), ("consoles.py", "file.write")}
    found = [
        (path.name, name)
        for path in sorted(folder.rglob("*.py"))
        for node, name in calls(ast.parse(path.read_text()))
        if not is_ours(node)
    ]
    assert set(found) == allowed
    assert found.count(("printing.py", "click.echo")) == 1
    streams = [path.name for path in folder.rglob("*.py") if "sys.stdout.buffer" in path.read_text()]
    assert streams == []
