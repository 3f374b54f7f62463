"""The command line: its help, its exit codes, and a server that is really there."""

from __future__ import annotations

import io
import json
import logging
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from click.testing import CliRunner
from support.command import DRAGOMAN, SOURCE, clean_environment, dragoman
from support.server_process import ServerProcess

from dragoman.cli.main import EXIT_CODES, VERBS, exit_code, group
from dragoman.model.error import (
    AuthError,
    BadCard,
    BadResponse,
    CannotConnect,
    ConfigError,
    DragomanError,
    Failed,
    TaskNotFound,
    Unauthenticated,
)
from dragoman.server.config.settings import SETTINGS
from dragoman.telemetry.escaping import NAMES
from dragoman.telemetry.logs import configure

# An agent of a few lines that answers with what it was sent.
ECHO = """
import io
import json

class App:
    startup_error = None

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            await self.live(receive, send)
            return
        body = json.loads((await receive())["body"])
        answer = {"path": scope["path"], "headers": {k.decode(): v.decode() for k, v in scope["headers"]}, "body": body}
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})

    async def live(self, receive, send):
        while True:
            kind = (await receive())["type"]
            await send({"type": f"{kind}.complete"})
            if kind == "lifespan.shutdown":
                print("closed", flush=True)
                return

class Echo:
    name = "echo"
    def app_for(self, settings):
        return App()

agent = Echo()
"""


@contextmanager
def serving(folder: Path, *args: str, lines: int = 5, **more: str) -> Iterator[tuple[ServerProcess, list[str]]]:
    """A server, and the lines it prints once it is there."""
    with closing(ServerProcess([*DRAGOMAN, "serve", *args], folder, environment=clean_environment(**more))) as server:
        yield server, server.lines(lines)


def pasted(line: str) -> dict[str, object]:
    """What a printed curl line answers when a shell runs it as it stands."""
    command = line.partition("  curl")[2]
    assert command
    done = subprocess.run(
        ["sh", "-c", f"curl{command}"], capture_output=True, text=True, timeout=30, check=True, env=clean_environment()
    )
    return json.loads(done.stdout)


@pytest.fixture
def echo(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(ECHO)
    return tmp_path


def test_help_lists_every_verb():
    done = CliRunner().invoke(group, ["--help"])
    assert done.exit_code == 0
    for name, verb in VERBS.items():
        assert f"{name:<{max(map(len, VERBS))}}  {verb.help}" in done.output


def test_the_short_help_of_a_verb_is_the_one_in_the_list():
    with group.make_context("dragoman", ["--help"], resilient_parsing=True) as ctx:
        for verb, text in ((name, each.help) for name, each in VERBS.items()):
            command = group.get_command(ctx, verb)
            assert command is not None
            assert command.get_short_help_str(100) == text


def test_help_imports_neither_the_server_nor_the_types(tmp_path: Path):
    check = "import sys; from dragoman.cli.main import main\ntry: main(['--help'])\nfinally: print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", check], cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, check=True
    )
    assert not {"uvicorn", "msgspec", "asyncio", "dragoman.cli.serve.command"} & set(done.stdout.split())
    check = check.replace("['--help']", "['send', '--help']")
    done = subprocess.run(
        [sys.executable, "-c", check], cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, check=True
    )
    assert not {"uvicorn", "msgspec", "aiohttp", "dragoman.client.client"} & set(done.stdout.split())


def test_the_version_is_printed(tmp_path: Path):
    from dragoman import __version__

    assert dragoman(tmp_path, "--version").stdout == f"dragoman {__version__}\n"


def headings(text: str) -> dict[str, str]:
    """The groups of a help, with the options of each."""
    return dict(re.findall(r"^([A-Z][\w ]+):\n((?:  .*\n)+)", text, re.MULTILINE))


def test_the_help_of_serve_shows_the_most_used_options_by_group_on_one_screen():
    output = CliRunner().invoke(group, ["serve", "--help"], terminal_width=100).output
    groups = headings(output)
    assert {"Agent", "Address", "Store", "Who may call", "Development", "Logging", "Help"} == set(groups)
    assert "--port" in groups["Address"] and "--mcp" in groups["Agent"] and "--auth" in groups["Who may call"]
    assert "--limits-tasks" not in output
    assert len(re.findall(r"^  -", output, re.MULTILINE)) < 20
    assert len(output.splitlines()) < 60
    assert "dragoman serve trip.py" in output.partition("Agent:")[0]


def test_the_help_of_serve_says_how_many_options_it_leaves_out_and_help_all_lists_them():
    short, full = (
        CliRunner().invoke(group, ["serve", flag], terminal_width=100).output for flag in ("--help", "--help-all")
    )
    left_out = re.search(r"^(\d+) more options: `\S+ serve --help-all`$", short, re.MULTILINE)
    assert left_out is not None
    assert "more options" not in full
    count = [len(re.findall(r"^  -", text, re.MULTILINE)) for text in (short, full)]
    assert int(left_out[1]) == count[1] - count[0]


def test_every_setting_with_a_flag_stands_under_its_own_group_in_the_full_help_with_its_text():
    output = CliRunner().invoke(group, ["serve", "--help-all"], terminal_width=200).output
    groups, text = headings(output), " ".join(output.split())
    for info in SETTINGS.values():
        if info.flag is not None:
            assert info.help.text in text
            assert info.flag.partition("/")[0] in groups[info.help.group]


def test_an_unknown_verb_is_answered_with_the_nearest():
    done = CliRunner().invoke(group, ["srve"])
    assert done.exit_code == 2
    assert "No such command 'srve'. Did you mean 'serve'?" in done.output
    assert f"There are: {', '.join(VERBS)}." in CliRunner().invoke(group, ["zzz"]).output


@pytest.mark.parametrize(
    ("typed", "nearest"),
    [
        ("serve --profile cladue", "there is no profile `cladue`; did you mean `claude`?"),
        ("serve dragoman.examples.demo --auth baisc", "there is no scheme `baisc`; did you mean `basic`?"),
        ("serve dragoman.examples.demo --auth api-key", "there is no scheme `api-key`; did you mean `apikey`?"),
        ("serve --log-level infos", 'did you mean "info"?'),
        ("serve --store sqlit:///x.db", "did you mean `sqlite:///x.db`?"),
        ("serve --store SQLITE:///x.db", "did you mean `sqlite:///x.db`?"),
        ("serve --store memroy:", "did you mean `memory:`?"),
        ("serve dragoman.examples.demp", "there is no module `dragoman.examples.demp`; did you mean"),
        ("users ad ada", "No such command 'ad'. Did you mean 'add'?"),
    ],
)
def test_a_typo_is_answered_with_the_nearest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, nearest: str):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(group, [*shlex.split(typed), *(["--port", "0"] if typed.startswith("serve") else [])])
    assert nearest in f"{done.output}{done.exception}"


@pytest.mark.parametrize(
    ("table", "nearest"),
    [
        ("[agent.x]\ntarget = 'app.py'", "there is no table [agent]; did you mean `[agents]`?"),
        ("[agents.x]\ntargt = 'app.py'", "there is no setting `targt`; did you mean `target`?"),
        ("[agents.x]\nprofile = 'cladue'", "there is no profile `cladue`; did you mean `claude`?"),
    ],
)
def test_a_typo_in_the_file_is_answered_with_the_nearest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, nearest: str
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dragoman.toml").write_text(table)
    assert nearest in str(CliRunner().invoke(group, ["serve"]).exception)


@pytest.mark.asyncio
@pytest.mark.parametrize("skill", ["conver", "plan-trip"])
async def test_a_typo_in_a_skill_is_answered_with_the_nearest(skill: str):
    from dragoman import Client
    from dragoman.errors import TaskFailed
    from dragoman.examples.demo import agent

    async with Client(agent) as client:
        with pytest.raises(TaskFailed, match=r"did you mean `(convert|plan_trip)`"):
            await client.call(skill)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), 2),
        (CannotConnect("x"), 3),
        (BadCard("x"), 3),
        (BadResponse("x"), 3),
        (TaskNotFound(), 4),
        (AuthError("x"), 5),
        (Unauthenticated(), 5),
        (Failed("x"), 1),
        (DragomanError("x"), 1),
    ],
)
def test_every_error_has_its_exit_code(error: DragomanError, code: int):
    assert exit_code(error) == code


def test_an_error_leads_to_one_exit_code():
    kinds = [kind for each in EXIT_CODES for kind in each.errors]
    assert len(kinds) == len(set(kinds))
    assert DragomanError in kinds


@pytest.mark.parametrize("verb", [None, *(name for name, verb in VERBS.items() if verb.exits)])
def test_the_help_of_a_command_lists_its_exit_codes(verb: str | None):
    codes = [each for each in EXIT_CODES if verb is None or each.code in VERBS[verb].exits]
    shown = CliRunner().invoke(group, ["--help"] if verb is None else [verb, "--help"]).output
    lines = shown.partition("Exit codes:\n")[2].splitlines()
    assert lines[: len(codes)] == [f"    {each.code:<4} {each.help}" for each in codes]


def test_every_command_that_calls_an_agent_says_when_nobody_answers():
    assert {name for name, verb in VERBS.items() if 3 in verb.exits} == {
        *("serve", "send", "call", "chat", "watch", "get", "cancel", "tasks", "card", "top", "open")
    }


def test_without_a_target_the_first_agent_to_write_is_shown(tmp_path: Path):
    done = dragoman(tmp_path, "serve")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("dragoman: nothing to serve: name a target, as in `dragoman serve app.py`.")
    example = done.stderr.partition("\n\n")[2]
    (tmp_path / "app.py").write_text(example)
    subprocess.run([sys.executable, "app.py"], cwd=tmp_path, env=clean_environment(), check=True, timeout=30)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_server_says_where_it_is_and_every_line_it_prints_works(echo: Path, host: str):
    with serving(echo, "app.py", "--port", "0", "--host", host, "--store", "memory:", "--curl") as (process, lines):
        name, card, store, try_it, stream = lines
        base = card.removeprefix("  card    ").removesuffix("/.well-known/agent-card.json")
        assert name == f"serving echo at {base}"
        assert base.startswith("http://[::1]:" if host == "::1" else "http://127.0.0.1:")
        assert store == "  store   memory: lost when the server stops"
        sent = pasted(try_it)
        assert sent["path"] == "/"
        assert sent["headers"]["a2a-version"] == "1.0"  # pyright: ignore
        assert sent["headers"]["content-type"] == "application/json"  # pyright: ignore
        message = {"messageId": "try-1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
        rpc = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
        assert sent["body"] == rpc
        assert "-N" in shlex.split(stream)
        sent = pasted(stream)
        assert (sent["path"], sent["body"]) == ("/message:stream", {"message": message})
        assert process.end() == 0


def test_a_quiet_server_prints_nothing_but_warnings(echo: Path):
    with serving(echo, "app.py", "--port", "0", "--host", "0.0.0.0", "--quiet", lines=1) as (process, lines):
        assert lines[0].startswith("warning: anyone who can reach 0.0.0.0:")
        process.end()
    assert process.unread == ""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_stops_it_cleanly(echo: Path, number: signal.Signals, code: int):
    with serving(echo, "app.py", "--port", "0", lines=4) as (process, _):
        ended = process.end(number)
    assert (ended, process.stdout, process.unread.strip()) == (code, "closed\n", "")


@pytest.mark.parametrize("flags", [(), ("--reload",)])
def test_a_server_in_the_background_ignores_ctrl_c_and_sigterm_stops_it(echo: Path, flags: tuple[str, ...]):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell without job control starts `dragoman serve … &`
    try:
        with serving(echo, "app.py", "--port", "0", *flags, lines=4) as (process, lines):
            process.send_signal(signal.SIGINT)
            url = lines[0].removeprefix("serving echo at ")
            with urlopen(url, b"{}", timeout=10) as response:
                assert response.status == 200
            assert process.end(signal.SIGTERM) == 0
    finally:
        signal.signal(signal.SIGINT, before)


def test_settings_an_object_was_made_with_count_and_flags_go_before_them(echo: Path):
    made_with = "agent.keywords = {'port': 0, 'store': 'memory:', 'auth': lambda request: None}\n"
    (echo / "app.py").write_text(ECHO + made_with)
    with serving(echo, "app.py", "--host", "0.0.0.0", "--store", "sqlite:///other.db", lines=4) as (process, lines):
        assert lines[2] == "  store   other.db"
        process.end()
    assert "warning" not in process.unread


def test_a_second_server_is_refused_with_a_command_that_starts_it(tmp_path: Path):
    (tmp_path / "one.py").write_text("def low(text: str) -> str: return text.lower()\n")
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = str(found.getsockname()[1])
    with serving(tmp_path, "one.py:low", "--port", port, lines=2):
        other_port = dragoman(tmp_path, "serve", "one.py:low", "--port", "0")
        same_port = dragoman(tmp_path, "serve", f"--port={port}", "one.py:low")
        assert "tasks.db is in use by pid " in other_port.stderr
        assert other_port.stderr.endswith("dragoman serve one.py:low --port 0 --store sqlite:///.dragoman/two.db\n")
        command = shlex.split(same_port.stderr.splitlines()[-1])[1:]
        assert command[:3] == ["serve", "one.py:low", "--port"]
        with serving(tmp_path, *command[1:], lines=5) as (_, lines):
            assert lines[0].startswith("serving low at ")
            assert "  store   .dragoman/two.db" in lines


def test_a_server_is_not_served_beside_others(echo: Path):
    done = dragoman(echo, "serve", "app.py", "app.py")
    assert done.returncode == 2
    assert done.stderr.startswith("dragoman: a Server cannot be served with other targets: list its agents instead")


def test_the_line_it_prints_for_a_function_calls_it_with_arguments_it_takes(tmp_path: Path):
    (tmp_path / "one.py").write_text("def add(a: int, b: float) -> float:\n    return a + b\n")
    with serving(tmp_path, "one.py:add", "--port", "0", "--store", "memory:", "--curl", lines=6) as (_, lines):
        line = next(line for line in lines if line.startswith("  try"))
        assert '"text":"4.5"' in json.dumps(pasted(line), separators=(",", ":"))


def test_a_port_that_is_taken_between_binding_and_listening_is_an_error_and_the_app_is_closed(echo: Path):
    takes = """
import socket
class Late(Echo):
    def app_for(self, settings):
        self.rival = socket.create_server(("127.0.0.1", settings.port))
        return App()
agent = Late()
"""
    (echo / "app.py").write_text(ECHO + takes)
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    done = dragoman(echo, "serve", "app.py", "--port", str(port))
    assert (done.returncode, done.stdout) == (2, "closed\n")
    assert f"dragoman: port {port} is in use: use --port" in done.stderr


def test_the_file_says_what_to_serve_relative_to_itself(echo: Path):
    (echo / "etc").mkdir()
    (echo / "etc" / "other.toml").write_text(
        '[serve]\nport = 0\nstore = "sqlite:///t.db"\n[agents.e]\ntarget = "app.py"'
    )
    (echo / "app.py").rename(echo / "etc" / "app.py")
    with serving(echo, "--config", "etc/other.toml", lines=4) as (_, lines):
        assert lines[0].startswith("serving echo at ")
        assert lines[2] == f"  store   {echo / 'etc' / 't.db'}"


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("[agents.e]", 'dragoman.toml [agents.e]: say what to serve, as in target = "app.py"'),
        ("[agents.e]\ntarget = 1", 'dragoman.toml [agents.e]: say what to serve, as in target = "app.py"'),
        (
            "[agents.e]\nfile = 'x'",
            "dragoman.toml [agents.e]: there is no setting `file`; there are `target`, `a2a` and `mcp`",
        ),
        ("[agents.e]\ntarget = 'app:ECHO'", "dragoman.toml [agents.e] target: an object of type `str` cannot be"),
    ],
)
def test_an_error_in_an_agents_table_names_the_table(tmp_path: Path, table: str, says: str):
    (tmp_path / "app.py").write_text("ECHO = ''")
    (tmp_path / "dragoman.toml").write_text(table)
    done = dragoman(tmp_path, "serve")
    assert done.returncode == 2
    assert done.stderr.startswith(f"dragoman: {says}")


FAILING = """
class {name}(App):
    async def live(self, receive, send):
        await receive()
        from dragoman.model.error import ConfigError
        {fails}

class Failing(Echo):
    def app_for(self, settings):
        return {name}()

agent = Failing()
"""


@pytest.mark.parametrize(
    "fails",
    [
        "self.startup_error = ConfigError('tasks.db is in use by pid 4711'); raise self.startup_error",
        "self.startup_error = ConfigError('tasks.db is in use by pid 4711'); "
        "await send({'type': 'lifespan.startup.failed', 'message': 'no'})",
    ],
)
def test_the_error_that_keeps_the_app_from_starting_is_printed_unchanged(echo: Path, fails: str):
    (echo / "app.py").write_text(ECHO + FAILING.format(name="Unready", fails=fails))
    done = dragoman(echo, "serve", "app.py", "--port", "0")
    assert (done.returncode, done.stderr) == (2, "dragoman: tasks.db is in use by pid 4711\n")


def test_an_app_that_fails_at_its_start_points_to_the_log(echo: Path):
    (echo / "app.py").write_text(ECHO + FAILING.format(name="Broken", fails="1 / 0"))
    done = dragoman(echo, "serve", "app.py", "--port", "0", "--log", "json")
    assert done.returncode == 1
    *logged, last = done.stderr.splitlines()
    assert last == "dragoman: the server did not start: the log says why"
    assert "ZeroDivisionError" in json.loads(logged[0])["exception"]


def test_logs_are_lines_of_json_with_their_extras(capsys: pytest.CaptureFixture[str]):
    configure("json", "info")
    configure("json", "info")
    log = logging.getLogger("dragoman.test")
    log.debug("not shown")
    log.info("two\nlines %s", "ü", extra={"task": "t1", "path": Path("x")})
    (line,) = capsys.readouterr().err.splitlines()
    entry = json.loads(line)
    assert entry.pop("time").endswith("+00:00")
    assert entry == {
        "level": "info",
        "logger": "dragoman.test",
        "message": "two\nlines ü",
        "task": "t1",
        "path": "x",
    }


FORGED = "t1\n2026-01-01 00:00:00.000 INFO    dragoman.audit: event=signed-in user=root\r\x1b[2J\x9b1m\u202e\u2028x"


@pytest.mark.parametrize("name", ["dragoman.engine", "somebody.else"])
def test_a_text_log_has_one_line_per_record(capsys: pytest.CaptureFixture[str], name: str):
    configure("text", "info")
    logging.getLogger(name).info("task %s ended", FORGED)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(
        rf"INFO    {name}: task t1\n2026-01-01 00:00:00.000 INFO    dragoman.audit: event=signed-in user=root"
        r"\r\x1b[2J\x9b1m\u202e\u2028x ended"
    )


def test_the_text_of_an_exception_begins_no_line_of_a_log(capsys: pytest.CaptureFixture[str]):
    configure("text", "info")
    try:
        raise ValueError(FORGED)
    except ValueError:
        logging.getLogger("dragoman.engine").exception("it broke")
    first, *rest = capsys.readouterr().err.splitlines()
    assert first.endswith("ERROR   dragoman.engine: it broke")
    assert any("event=signed-in" in line for line in rest)
    assert all(line.startswith("    ") for line in rest)
    assert not set("\x1b\x9b\u202e\u2028") & set("".join(rest))


def test_a_log_as_json_escapes_what_would_command_a_terminal(capsys: pytest.CaptureFixture[str]):
    configure("json", "info")
    logging.getLogger("somebody.else").info("task %s", FORGED, extra={"task_id": FORGED})
    written = capsys.readouterr().err
    assert not set("\r\x1b\x9b\u202e\u2028") & set(written)
    assert json.loads(written)["task_id"] == FORGED


def test_a_log_with_another_formatter_has_one_line_per_record():
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    for name in NAMES:
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        try:
            logger.error("task %s of %d", FORGED, 7)
        finally:
            logger.removeHandler(handler)
    lines = written.getvalue().splitlines()
    assert len(lines) == len(NAMES)
    assert all(line.startswith(r"task t1\n2026") and line.endswith("x of 7") for line in lines)


def test_a_record_with_nothing_to_escape_keeps_its_template(caplog: pytest.LogCaptureFixture):
    logging.getLogger("dragoman.engine").error("task %s", "t1")
    assert [(each.msg, each.args) for each in caplog.records] == [("task %s", ("t1",))]


def test_every_logger_of_ours_is_escaped():
    source = "\n".join(path.read_text() for path in (SOURCE / "dragoman").rglob("*.py"))
    assert set(re.findall(r'getLogger\("(dragoman\.\w+)"\)', source)) <= set(NAMES)
