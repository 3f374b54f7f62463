"""Commands as they are typed: in a pipe, and on a terminal."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from support.command import DRAGOMAN, clean_environment
from support.terminal import Terminal

from dragoman.cli.main import group, main
from dragoman.errors import ConfigError

PATIENCE = 30.0

Run = Callable[..., "subprocess.CompletedProcess[str]"]


class Ended(NamedTuple):
    """How a command line ended that ran in this process."""

    code: int
    out: str
    err: str


Typed = Callable[..., Ended]


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Typed:
    """Run a command line in this process, in a folder of its own: quicker than a process, and no terminal."""
    for name in ("DRAGOMAN_AGENT", "DRAGOMAN_URL", "DRAGOMAN_TOKEN", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> Ended:
        with pytest.raises(SystemExit) as ended:
            main(words)
        return Ended(int(ended.value.code or 0), *capfd.readouterr())

    return run


def refusal_of(*flags: str) -> str:
    """Why `dragoman serve` does not start with these words."""
    done = CliRunner().invoke(group, ["serve", *flags])
    assert isinstance(done.exception, ConfigError), done.output
    return str(done.exception)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a command in a folder of its own; `typed` is what stands on its stdin."""

    def run(*args: str, typed: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*DRAGOMAN, *args],
            cwd=tmp_path,
            env=clean_environment(tmp_path, **environ),
            input=typed,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    return run


@pytest.fixture
def forgotten_imports(tmp_path: Path) -> Iterator[None]:
    """Modules that a test imports from its folder are forgotten after it, and its folder leaves the path."""
    path = list(sys.path)
    yield
    sys.path[:] = path
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """Open terminals; they are closed at the end."""
    opened: list[Terminal] = []

    def open_terminal(*args: str, **options: Any) -> Terminal:
        opened.append(Terminal(args, tmp_path, **options))
        return opened[-1]

    yield open_terminal
    for each in opened:
        each.close()
