"""What the package is made of, and what it leaves alone."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from support.imported import packages_after

ROOT = Path(__file__).parents[2]


@pytest.mark.requirement("S2-34")
def test_serving_and_calling_need_neither_grpc_nor_protobuf(tmp_path: Path) -> None:
    database = tmp_path / "tasks.db"
    loaded = packages_after(
        "import asyncio\n"
        "from dragoman import Agent, Client\n"
        "from dragoman.testing import served\n"
        "agent = Agent('a')\n"
        "@agent.skill\n"
        "def echo(text: str) -> str: return text\n"
        "async def call(url):\n"
        "    async with Client(url) as client:\n"
        "        assert (await client.send('hi')).text == 'hi'\n"
        "        assert ''.join([event.text async for event in client.stream('ho')]) == 'ho'\n"
        f"with served(agent, store='sqlite:///{database}') as url:\n"
        "    asyncio.run(call(url))"
    )
    assert database.exists()  # one node, one file
    assert not loaded & {"grpc", "google", "a2a", "asyncpg", "redis"}


@pytest.mark.requirement("S2-92")
def test_writing_an_agent_needs_no_http_package() -> None:
    loaded = packages_after(
        "from dragoman import Agent, Context, Failed\n"
        "agent = Agent('a', description='d')\n"
        "@agent.skill\n"
        "async def f(ctx: Context, text: str) -> str:\n"
        "    return text"
    )
    assert not loaded & {"uvicorn", "httptools", "h11", "aiohttp", "httpx", "httpx2", "starlette", "http"}


def test_the_package_itself_is_nearly_nothing_until_it_is_used() -> None:
    loaded = packages_after("import dragoman")
    assert not loaded & {"asyncio", "msgspec", "sqlite3", "click"}


@pytest.mark.requirement("S2-108")
def test_the_dependencies_are_few_and_none_is_a_framework() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {line.partition(">")[0].partition(";")[0].strip() for line in project["dependencies"]}
    assert names == {
        "aiohttp",
        "argon2-cffi",
        "click",
        "cryptography",
        "httptools",
        "msgspec",
        "prometheus-client",
        "pyjwt",
        "rich",
        "uvicorn",
        "uvloop",
        "watchfiles",
    }


@pytest.mark.requirement("S2-116")
@pytest.mark.timeout(150)
@pytest.mark.parametrize(
    "tool",
    [
        ["ruff", "check", "."],
        ["ruff", "format", "--check", "."],
        # The whole of it takes as long as a thousand tests: `make check` does it, before every change that lands.
        ["basedpyright", "src/dragoman/compat/executor"],
    ],
    ids=["linter", "format", "types"],
)
def test_the_checkers_find_nothing(tool: list[str]) -> None:
    name, *words = tool
    done = subprocess.run([sys.executable, "-m", name, *words], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.requirement("S2-116")
def test_what_lands_has_passed_the_strict_type_checker_the_linter_and_the_suite() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["basedpyright"]
    assert (settings["typeCheckingMode"], "src" in settings["include"]) == ("strict", True)
    assert "make check test" in (ROOT / ".ci/run").read_text()
    check = (ROOT / "Makefile").read_text().partition("\ncheck:")[2].partition("\n\n")[0]
    assert [line.strip() for line in check.splitlines() if "ruff" in line or "basedpyright" in line] == [
        "$(BIN)/ruff check .",
        "$(BIN)/ruff format --check .",
        "$(BIN)/basedpyright",
    ]


@pytest.mark.requirement("S2-116")
def test_the_type_checker_does_find_what_is_wrong(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text("from dragoman.compat.executor import TextPart\n\nTextPart(text=3)\n")
    words = ["--pythonpath", sys.executable, str(wrong)]
    done = subprocess.run([sys.executable, "-m", "basedpyright", *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "wrong.py:3" in done.stdout
