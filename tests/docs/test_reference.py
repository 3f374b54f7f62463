"""docs/reference.md and the code list the same names, both ways."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import pkgutil
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from docs.tables import DOCS, code, page, rows

import dragoman
import dragoman.compat as compat_package
from dragoman import (
    Agent,
    Artifact,
    Client,
    Context,
    Event,
    File,
    Message,
    Part,
    Role,
    Server,
    State,
    Task,
    TaskPushNotificationConfig,
    User,
    auth,
    errors,
    sync,
)
from dragoman.cli.init.template import TEMPLATES
from dragoman.cli.main import EXIT_CODES, VERBS, group
from dragoman.client.streams.stream import EventStream
from dragoman.dialects.errors import status_of
from dragoman.errors import A2AError
from dragoman.server.config.settings import SETTINGS
from dragoman.server.http.app import App
from dragoman.telemetry.metrics import METRICS
from dragoman.telemetry.metrics.exposition import label_name, prometheus_name
from dragoman.transports.grpc.method import METHODS

# What the engine and its bridges need of a class, and no user is promised.
NOT_PROMISED = {
    Agent: {"app_for", "backend", "functions", "in_process", "revision", "tools"},
    Server: {"agents", "app_for", "in_process", "keywords", "name"},
    Context: {
        "answers",
        "artifact_stream",
        "artifacts",
        "ask_handler",
        "asks",
        "check_runs_here",
        "clock",
        "closing",
        "first_message",
        "first_metadata",
        "has_open_effect",
        "journaled_end",
        "next_status",
        "output_hold",
        "on_failed",
        "once_count",
        "open_task",
        "pending_calls",
        "progress_metadata",
        "record_output",
        "replay_followups",
        "restarted",
        "update_artifact",
        "update_status",
    },
    App: {
        "close_grpc",
        "delivery",
        "grpc_address",
        "give_up_start",
        "has_console",
        "listens_at",
        "metrics_address",
        "services",
        "startup_error",
    },
}
ONLY_ASYNC = {"extensions", "messages", "resume"}


# -- reading the page ----------------------------------------------------------------------------------------------


def names(cell: str) -> list[str]:
    """The names in a cell of members: `await send(text=None)` is `send`."""
    return [re.sub(r"\(.*", "", text.removeprefix("await ")) for text in code(cell)]


def members_shown(title: str) -> set[str]:
    last = "gives" if title == "member of `Client`" else ""
    return {name for row in rows(title, last) for name in names(row[0])}


def public(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


# -- imports -------------------------------------------------------------------------------------------------------


def public_modules() -> dict[str, list[str]]:
    """Every module a user imports from, with its exports: re-exports at the top, testing, and what is in compat."""
    found = pkgutil.iter_modules(dragoman.__path__)
    own = ("clock", "installation")
    top = [info.name for info in found if not (info.ispkg or info.name.startswith("__") or info.name in own)]
    compat = [f"compat.{info.name}" for info in pkgutil.iter_modules(compat_package.__path__)]
    modules = ["dragoman", *(f"dragoman.{name}" for name in [*top, "auth", "testing", *compat])]
    return {name: list(importlib.import_module(name).__all__) for name in modules}


def test_the_imports_are_all_there_are() -> None:
    shown = {code(row[0])[0]: code(row[1]) for row in rows("module", "names")}
    shown["dragoman.errors"] = [code(row[0])[0] for row in [*rows("error", "is a", ""), *rows(*PROTOCOL_ERRORS)]]
    found = public_modules()
    assert {name: sorted(exports) for name, exports in shown.items()} == {
        name: sorted(exports) for name, exports in found.items()
    }
    assert shown["dragoman"] == found["dragoman"], "the order is that of dragoman.__all__"


def test_the_extras_are_those_of_the_package() -> None:
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert [code(row[0])[0] for row in rows("extra", "for")] == list(project["optional-dependencies"])


# -- classes -------------------------------------------------------------------------------------------------------


@cache
def members_of_contexts() -> dict[str, set[str]]:
    """Those of instances: much of it is set when they are made."""
    agent = Agent("looker")

    @agent.skill
    async def in_async(ctx: Context) -> list[str]:
        return sorted(public(ctx))

    @agent.skill
    def in_def(ctx: sync.Context) -> list[str]:
        return sorted(public(ctx))

    async def look() -> dict[str, set[str]]:
        async with Client(agent) as client:
            return {skill.id: set(await client.call(skill.id)) for skill in agent.skills}

    return asyncio.run(look())


def test_the_context_has_what_is_listed() -> None:
    assert members_shown("member of `Context`") == members_of_contexts()["in_async"] - NOT_PROMISED[Context]


def test_the_context_of_def_skills_has_the_same_members_except_those_listed() -> None:
    section = page().split("`dragoman.sync.Context`, for `def` skills,")[1].split("\n\n")[0]
    assert set(code(section)) - {"await"} == ONLY_ASYNC
    assert members_of_contexts()["in_def"] == members_shown("member of `Context`") - ONLY_ASYNC


@pytest.mark.parametrize(
    ("title", "thing"),
    [
        ("member of `Agent`", Agent("x")),
        ("member of the app", App),
        ("member of `Client`", Client),
        ("member of the event stream", EventStream),
        ("member of `Event`", Event),
        ("member of `Task`", Task),
        ("member of `Message`", Message),
        ("member of `Part`", Part),
        ("member of `Artifact`", Artifact),
        ("member of `File`", File),
        ("member of `User`", User),
        ("member of `TaskPushNotificationConfig`", TaskPushNotificationConfig),
    ],
)
def test_a_class_has_the_members_that_are_listed(title: str, thing: object) -> None:
    kind = thing if isinstance(thing, type) else type(thing)
    assert members_shown(title) == public(thing) - NOT_PROMISED.get(kind, set())


def test_a_state_has_the_members_that_are_listed() -> None:
    listed = {name for row in rows("member of `State`", "") for name in names(row[0])}
    assert listed == {state.name for state in State} | {"final", "waiting"}
    for row in rows("member of `State`", ""):
        for name in names(row[0]):
            if name.isupper():
                assert State[name].waiting == ("`.waiting` is True" in row[1])
                assert State[name].final == ("`.final` is True" in row[1])


def test_a_role_has_the_members_that_are_listed() -> None:
    assert {name for row in rows("member of `Role`", "") for name in names(row[0])} == {role.name for role in Role}


@pytest.mark.parametrize(
    ("title", "function"),
    [
        ("keyword of `Agent`", Agent.__init__),
        ("keyword of `skill`", Agent.skill),
        ("keyword of `from_command`", Agent.from_command),
        ("keyword of `Client`", Client.__init__),
        ("keyword of `Client`", sync.Client.__init__),
    ],
)
def test_the_keywords_and_their_defaults_are_those_of_the_function(title: str, function: Any) -> None:
    shown = {code(row[0])[0]: code(row[1])[0] for row in rows(title, "default", "")}
    assert shown == keywords_of(function)


def keywords_of(function: Any) -> dict[str, str]:
    parameters = inspect.signature(function).parameters.values()
    return {p.name: repr(p.default).replace("'", '"') for p in parameters if p.kind is p.KEYWORD_ONLY}


def test_the_class_methods_of_an_agent_take_what_is_listed() -> None:
    for shown in (text for row in rows("member of `Agent`", "") for text in code(row[0]) if text.startswith("from_")):
        name, _, given = shown.removesuffix(")").partition("(")
        parameters = inspect.signature(getattr(Agent, name)).parameters.values()
        bare = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
        if given.endswith("…"):
            bare = [p for p in bare if p.kind is p.POSITIONAL_OR_KEYWORD]
        signature = str(inspect.Signature(bare)).replace("'", '"').strip("()")
        assert given.removesuffix(", …") == signature, name


def test_the_class_methods_for_other_frameworks_are_listed_with_their_keywords() -> None:
    methods = [code(row[0])[0] for row in rows("class method", "takes", "a conversation is", "what pauses a task")]
    (together,) = (code(row[0]) for row in rows("member of `Agent`", "") if "`from_adk" in row[0])
    assert methods == [text.partition("(")[0] for text in together]
    table = rows("keyword of these methods", "of", "default", "")
    assert {name for row in table for name in code(row[1])} <= set(methods)
    for method in methods:
        shown = {code(row[0])[0]: code(row[2])[0] for row in table if row[1] == "all" or method in code(row[1])}
        assert shown == keywords_of(getattr(Agent, method)), method


def test_a_remote_agent_is_made_and_used_as_it_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    # Before ADK is imported: it traces from then on.
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    from google.adk.agents import BaseAgent

    from dragoman.adk import RemoteAgent

    made = inspect.signature(RemoteAgent.__init__).parameters.values()
    shown = {code(row[0])[0]: "".join(code(row[1])) for row in rows("keyword of `RemoteAgent`", "default", "")}
    found = {str(p).partition(":")[0]: p.default for p in made if p.name != "self"}
    assert shown == {
        name: "" if default is inspect.Parameter.empty else repr(default) for name, default in found.items()
    }
    for row in rows("member of `RemoteAgent`", ""):
        (text,) = code(row[0])
        listed = re.findall(r"(\w+)=", text)
        assert listed == [*inspect.signature(getattr(RemoteAgent, names(row[0])[0])).parameters][1:]
        assert inspect.iscoroutinefunction(getattr(RemoteAgent, names(row[0])[0])) == text.startswith("await ")
    assert members_shown("member of `RemoteAgent`") == public(RemoteAgent) - public(BaseAgent)


def test_the_client_methods_take_what_is_listed() -> None:
    for row in rows("member of `Client`", "gives"):
        (shown,) = code(row[0])
        name = names(row[0])[0]
        if isinstance(getattr(Client, name), property):
            continue
        parameters = inspect.signature(getattr(Client, name)).parameters.values()
        listed = re.findall(r"\*{0,2}(\w+)", shown.partition("(")[2])
        expected = [p.name for p in parameters if p.name != "self"]
        assert [word for word in listed if word not in ("None", "True")] == expected


def test_the_client_without_await_has_the_same_methods_with_the_same_parameters() -> None:
    assert public(sync.Client) == public(Client)
    for name in public(Client):
        if isinstance(getattr(Client, name), property):
            continue
        theirs, ours = (inspect.signature(getattr(kind, name)).parameters for kind in (Client, sync.Client))
        assert [str(each).partition(":")[0] for each in ours.values()] == [
            str(each).partition(":")[0] for each in theirs.values()
        ], name


def test_every_credential_is_shown_as_it_is_made() -> None:
    shown = {code(row[0])[0].partition("(")[0]: code(row[0])[0] for row in rows("credential", "")}
    assert sorted(shown) == sorted(auth.__all__)
    for name, text in shown.items():
        parameters = list(inspect.signature(getattr(auth, name)).parameters.values())
        listed = re.findall(r"(\w+)(?:=(?:\w+|\"\w+\"))?(?:, |\))", text.partition("(")[2].replace("*, ", ""))
        assert listed == [p.name for p in parameters if not p.name.startswith("_")], name


# -- skills --------------------------------------------------------------------------------------------------------


async def test_every_parameter_type_takes_the_json_beside_it() -> None:
    block = page().split("### Parameter types")[1].split("```python\n")[1].split("```")[0]
    scope: dict[str, Any] = {"__name__": __name__}
    exec(block, scope)
    for row in rows("annotation", "JSON that fits"):
        (annotation,) = code(row[0])
        agent = Agent("taker")

        def take(value: Any) -> None: ...

        take.__annotations__["value"] = eval(annotation, scope)
        agent.skill(take)
        async with Client(agent) as client:
            for text in code(row[1]):
                task = await client.send(tool="take", arguments={"value": json.loads(text)})
                assert task.state is State.COMPLETED, f"{annotation} does not take {text}: {task.text}"


# -- errors --------------------------------------------------------------------------------------------------------

PROTOCOL_ERRORS = ("error", "is a", "JSON-RPC", "HTTP", "reason")


def error_classes() -> dict[str, type[Exception]]:
    return {name: getattr(errors, name) for name in errors.__all__}


def test_every_error_is_listed_with_what_it_is_a_kind_of() -> None:
    shown = {code(row[0])[0]: code(row[1])[0] for row in [*rows("error", "is a", ""), *rows(*PROTOCOL_ERRORS)]}
    assert shown == {name: cls.__base__.__name__ for name, cls in error_classes().items() if cls.__base__}


def wire(cls: type[A2AError]) -> tuple[str, str, str]:
    return str(cls.code), str(status_of(cls()).http), cls.reason


def protocol_errors() -> dict[str, tuple[str, str, str]]:
    return {
        name: wire(cls) for name, cls in error_classes().items() if issubclass(cls, A2AError) and cls is not A2AError
    }


def test_the_reference_says_the_code_status_and_reason_of_each_error() -> None:
    shown = {code(row[0])[0]: (row[2], row[3], code(row[4])[0]) for row in rows(*PROTOCOL_ERRORS)}
    assert shown == protocol_errors()


def test_the_protocols_page_says_the_same() -> None:
    table = rows("error", "JSON-RPC", "HTTP", "gRPC", "`reason`", "when", of="protocols.md")
    assert {code(row[0])[0]: (row[1], row[2], code(row[4])[0]) for row in table} == protocol_errors()
    statuses = {name: status_of(cls()).name for name, cls in error_classes().items() if name in protocol_errors()}
    assert {code(row[0])[0]: code(row[3])[0] for row in table} == statuses


def test_the_protocols_page_has_a_command_for_every_method_of_grpc() -> None:
    text = page("protocols.md")
    assert [path for path in METHODS if f"127.0.0.1:50051 {path[1:]}" not in text] == []


# -- settings and the command --------------------------------------------------------------------------------------


def default_of(name: str) -> str:
    value = SETTINGS[name].default
    if isinstance(value, bool):
        return "on" if value else "off"
    return "none" if value is None or value == () else f"`{value}`"


def test_every_setting_is_listed_with_its_default_flag_and_variable() -> None:
    shown = {code(row[0])[0]: row[1:4] for row in rows("setting", "default", "flag", "environment", "")}
    expected: dict[str, list[str]] = {}
    for name, info in SETTINGS.items():
        flags = " ".join(f"`{flag}`" for flag in info.flag.split("/")) if info.flag else "none"
        variable = f"`DRAGOMAN_{name.upper()}`" if info.flag or info.help.secret else "none"
        expected[name] = [default_of(name), flags, variable]
    assert shown == expected


def options_of(*names: str) -> set[str]:
    """The options of a command, with those of the commands below it."""
    flag, heading = ("--help-all", "Agent:") if names == ("serve",) else ("--help", "Options:")
    text = CliRunner().invoke(group, [*names, flag], env={**os.environ, "COLUMNS": "200"}).output
    found = set(re.findall(r"(?<![\w-])(?:--[a-z][a-z0-9-]*|-[a-z]\b)", text.partition(heading)[2]))
    return found.union(*(options_of(*names, below) for below in commands_of(*names)))


def commands_of(*names: str) -> list[str]:
    command = group.get_command(click.Context(group), names[0])
    for name in names[1:]:
        command = command.commands[name] if isinstance(command, click.Group) else None
    return list(command.commands) if isinstance(command, click.Group) else []


def test_every_metric_is_listed_with_its_names_kind_labels_and_meaning() -> None:
    expected = [
        [
            f"`{metric.name}`",
            f"`{prometheus_name(metric)}{'_total' if metric.kind == 'counter' else ''}`",
            metric.kind,
            " ".join(f"`{label_name(label)}`" for label in metric.labels),
            metric.help,
        ]
        for metric in METRICS.metrics.values()
    ]
    assert rows("metric", "in Prometheus", "kind", "labels", "") == expected


def test_every_command_is_described_with_all_its_options_and_no_other() -> None:
    commands = list(VERBS)
    assert re.findall(r"^### dragoman (\w+)$", page(), re.MULTILINE) == commands
    shown = {name: {option for row in rows(f"option of `{name}`", "") for option in code(row[0])} for name in commands}
    for name in commands:
        if commands_of(name):
            listed = [code(row[0])[0].split()[0] for row in rows(f"command of `{name}`", "")]
            assert listed == commands_of(name)
    shown["serve"] |= {flag for row in rows("setting", "default", "flag", "environment", "") for flag in code(row[2])}
    assert shown == {name: options_of(name) for name in commands}


def test_the_templates_are_those_of_init() -> None:
    shown = {code(row[0])[0]: row[1] for row in rows("template", "the agent is")}
    assert shown == {name: template.help for name, template in TEMPLATES.items()}


def test_the_tables_of_agents_may_say_what_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = rows("in `[agents.NAME]`", "other keys")
    kinds = [name for row in table for name in code(row[0])]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dragoman.toml").write_text("[agents.x]\nqqq = 1\n")
    assert kinds == code(str(CliRunner().invoke(group, ["serve"]).exception).partition("there are")[2])
    always = code(table[-1][1])
    for row in table[2:-1]:
        (tmp_path / "dragoman.toml").write_text(f'[agents.x]\n{code(row[0])[0]} = "x"\nqqq = 1\n')
        flags = str(CliRunner().invoke(group, ["serve"]).exception).partition("there are ")[2].split(", ")
        listed = [name for name in code(row[1]) if not name.startswith("from_")]
        both = ["profile"] if "command" in code(row[0]) else []
        assert sorted([*listed, *both, *always]) == sorted(flags), row[0]


def test_the_exit_codes_are_those_of_the_table() -> None:
    shown = {row[0]: row[1] for row in rows("code", "when")}
    assert list(shown) == [str(each.code) for each in EXIT_CODES]
    for each in EXIT_CODES:
        assert re.match(rf"{each.help}($|[:;])", shown[str(each.code)]), each
        assert code(shown[str(each.code)]) == [kind.__name__ for kind in each.errors], each


# -- make ----------------------------------------------------------------------------------------------------------


def test_contributing_lists_every_make_command_and_no_other() -> None:
    shown = [code(row[0])[0].removeprefix("make ") for row in rows("command", "", of="../CONTRIBUTING.md")]
    makefile = (DOCS.parent / "Makefile").read_text(encoding="utf-8")
    assert shown == re.findall(r"^([a-z-]+):.*##", makefile, re.MULTILINE)


def test_every_attribute_of_a_span_is_listed() -> None:
    files = ("telemetry/conventions.py", "telemetry/mcp_calls.py", "engine/execute/traces.py", "webhooks/traces.py")
    source = "\n".join((DOCS.parent / "src/dragoman" / file).read_text() for file in (*files, "telemetry/spans.py"))
    used = set(re.findall(r'(?<!getLogger\()"((?:a2a|gen_ai|mcp|dragoman|server|http|error)\.[a-z_.]+)"', source))
    listed = {name for row in rows("attribute", "of", "") for name in code(row[0])}
    assert used == listed
