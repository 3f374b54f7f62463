"""`dragoman init`: the folder it makes runs, and its test passes, at once."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.command import DRAGOMAN
from support.server_process import ServerProcess

from dragoman.cli.init import template as templates
from dragoman.cli.init.template import TEMPLATES, identifier_of
from dragoman.cli.main import group
from dragoman.installation import install_line
from dragoman.model.error import ConfigError
from dragoman.server.agent.target import as_servable, load_target
from dragoman.testing import served

NAMES = ["agent", "conftest", "stand_in", "test_agent"]  # of the modules in a new folder


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder, and no module of another one. Keys of models stay out of it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("OPENAI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")  # before ADK is imported: it traces from then on
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")  # as if activated
    yield tmp_path
    for name in [each for each in sys.modules if re.sub(r"_\d+$", "", each) in NAMES]:
        del sys.modules[name]


def init(*args: str) -> Result:
    return CliRunner().invoke(group, ["init", *args])


def refusal(*args: str) -> str:
    done = init(*args)
    assert isinstance(done.exception, ConfigError), done.output
    return str(done.exception)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", TEMPLATES)
def test_an_agent_of_a_template_answers_and_its_tests_pass(
    here: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    template = TEMPLATES[name]
    done = init("my-agent", "--template", name)
    assert (done.exit_code, done.stderr) == (0, "")
    folder = here / "my-agent"
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)

    tests = {each: test for each, test in runpy.run_path("test_agent.py").items() if each.startswith("test_")}
    assert tests
    for test in tests.values():
        test()

    (table,) = tomllib.loads(Path("dragoman.toml").read_text())["agents"].values()
    target = table.get("target") or table["langgraph"]
    with served(as_servable(load_target(target, cwd=folder))) as url:  # type: ignore[arg-type]
        for line in (template.send_line, *template.commands):
            verb, *words = shlex.split(line)[1:]
            if verb in ("send", "call") and "-" not in words and "plan_trip" not in words:
                sent = CliRunner().invoke(group, [verb, url, *words])
                assert (sent.exit_code, sent.stderr) == (0, ""), line
                assert sent.stdout.strip()
                assert line in Path("README.md").read_text()


def test_the_printed_lines_are_all_it_takes(here: Path) -> None:
    lines = [line.strip() for line in init("trip").stdout.splitlines() if line.startswith("  ")]
    send = 'dragoman send "How many words are these?"'
    assert lines == ["cd trip", "dragoman serve", f"{send}    # in a second terminal", "pytest"]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "DRAGOMAN_PORT": "0"}
    with ServerProcess([*DRAGOMAN, "serve"], here / "trip", environment=environ) as server:
        sent = CliRunner(env={"DRAGOMAN_AGENT": server.url}).invoke(group, shlex.split(send)[1:])
        assert (sent.exit_code, sent.stdout) == (0, "5 words\n")
        assert server.end() == 0
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:langsmith_plugin"],
        cwd="trip",
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "3 passed" in done.stdout, done.stdout
    assert sorted(path.name for path in (here / "trip").iterdir() if path.name != "__pycache__") == [
        *(".dragoman", ".gitignore", "README.md", "agent.py", "dragoman.toml", "pytest.ini", "test_agent.py")
    ]
    assert ".dragoman/" in (here / "trip" / ".gitignore").read_text()


@pytest.mark.parametrize("args", [[], ["."]])
def test_without_a_name_it_goes_into_the_empty_folder_it_is_in(
    here: Path, monkeypatch: pytest.MonkeyPatch, args: list[str]
) -> None:
    folder = here / "My Café"
    (folder / ".git").mkdir(parents=True)
    (folder / "env").mkdir()
    (folder / "env" / "pyvenv.cfg").touch()  # a virtual environment
    monkeypatch.chdir(folder)
    done = init(*args)
    assert done.stdout.startswith("created an agent here from the template tools. Next steps:\n\n  dragoman serve\n")
    assert 'Agent("my-cafe"' in (folder / "agent.py").read_text()
    assert (
        "this folder is not empty (it contains README.md): create a new one, as in `dragoman init my-agent`"
        in refusal()
    )


def test_nothing_is_overwritten(here: Path) -> None:
    (here / "trip").mkdir()
    (here / "trip" / "notes.txt").write_text("mine")
    assert refusal("trip") == (
        "the folder trip is not empty (it contains notes.txt): choose another name, as in `dragoman init trip-2`"
    )
    assert [path.name for path in (here / "trip").iterdir()] == ["notes.txt"]
    assert refusal("trip/notes.txt") == "`notes.txt` cannot be the name of an agent: use letters, digits, - and _, " + (
        "as in `dragoman init trip/notes-txt`"
    )
    (here / "file").touch()
    assert refusal("file") == "`file` is a file: choose another name"


@pytest.mark.parametrize("name", ["trip", "my-agent", "My_Agent2", "agents/trip", "2nd"])
def test_names_that_are_handled(here: Path, name: str) -> None:
    assert init(name).exit_code == 0
    last = name.rpartition("/")[2]
    assert f'Agent("{last}"' in (here / name / "agent.py").read_text()
    assert last in tomllib.loads((here / name / "dragoman.toml").read_text())["agents"]


@pytest.mark.parametrize(
    ("name", "better"),
    [
        ("my agent", "my-agent"),
        ('a"; import os', "a-import-os"),
        ("Zürich!", "zurich"),
        ("旅行", "my-agent"),
        ("a.b", "a-b"),
        ("$(rm -rf)", "rm-rf"),
        ("..", "my-agent"),
        ("x" * 65, "x" * 64),
    ],
)
def test_names_that_are_not_get_a_better_one(here: Path, name: str, better: str) -> None:
    says = refusal(name)
    assert says.startswith(f"`{name}` cannot be the name of an agent: use letters, digits, - and _, as in ")
    assert says.endswith(f"`dragoman init {better}`")
    assert [*here.iterdir()] == []


def test_a_folder_that_cannot_be_is_one_sentence(here: Path) -> None:
    done = CliRunner().invoke(group, ["init", f"{'d' * 300}/x"])
    assert isinstance(done.exception, ConfigError)
    assert str(done.exception).endswith("File name too long")


def test_agents_of_adk_get_an_identifier() -> None:
    assert [identifier_of(name) for name in ("trip", "my-agent", "2nd", "user")] == [
        *("trip", "my_agent", "agent_2nd", "agent_user")
    ]


def test_a_typo_in_a_template_gets_the_nearest() -> None:
    done = init("trip", "--template", "pydanticai")
    assert done.exit_code == 2
    assert "there is no template `pydanticai`; did you mean `pydantic-ai`?" in done.output
    assert f"there are {', '.join(TEMPLATES)}." in " ".join(init("trip", "--template", "zzz").output.split())


def test_the_help_lists_the_templates() -> None:
    shown = init("--help").output
    for template in TEMPLATES.values():
        assert f"    {template.name:<12} {template.help}\n" in shown


def test_a_shell_completes_the_templates() -> None:
    environ = {"_DRAGOMAN_COMPLETE": "bash_complete", "COMP_WORDS": "dragoman init --template p", "COMP_CWORD": "3"}
    done = CliRunner().invoke(group, [], env=environ, prog_name="dragoman")
    assert done.stdout.split() == ["plain,program", "plain,pydantic-ai"]


def test_an_extra_that_is_missing_is_one_line_to_install(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templates, "find_spec", lambda module: None)
    done = init("trip", "--template", "pydantic-ai")
    assert (here / "trip" / "agent.py").is_file()
    line = install_line("pydantic-ai", packages=("pytest",))
    assert done.stdout.splitlines()[2:5] == ["  cd trip", f"  {line}", "  dragoman serve"]

    # With a key, the real model's package is needed too.
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    line = install_line("pydantic-ai", packages=("pytest", "pydantic-ai-slim[openai]"))
    assert f"  {line}\n" in init("two", "--template", "pydantic-ai").stdout


def test_a_model_that_needs_a_key_is_marked_where_it_is_named() -> None:
    for template in TEMPLATES.values():
        source = template.write("x")["agent.py"]
        if template.model is not None:
            assert f'os.environ.get("{template.model.key}")' in source.partition("# CHANGE THIS")[2]
            assert f'"{template.model.key}"' in template.write("x")["conftest.py"]
