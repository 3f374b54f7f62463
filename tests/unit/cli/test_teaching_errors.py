"""What the user did, and what is printed: every mistake is answered with what to type instead."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from dragoman.installation import install_line

from .conftest import Run

SERVABLE = """
class Echo:
    name = "echo"
    def app_for(self, settings): ...

agent = Echo()
"""


class Mistake(NamedTuple):
    """What the user typed, in a folder with `files`; `{taken}` is a port that is in use."""

    did: str
    typed: str
    prints: str
    files: dict[str, str] = {}  # noqa: RUF012 never changed
    then: str = ""  # the command it suggests


MISTAKES = [
    Mistake(
        "misspelt a flag",
        "serve app.py --prot 9000",
        "Error: No such option '--prot'. Did you mean '--port'?",
    ),
    Mistake(
        "misspelt a setting in the file",
        "serve app.py",
        "dragoman: dragoman.toml [serve]: there is no setting `prot`; did you mean `port`?",
        files={"dragoman.toml": "[serve]\nprot = 9000\n"},
    ),
    Mistake(
        "wanted what an extra has",
        "serve app.py --store postgresql://me:hunter2@db:x/tasks",
        "dragoman: --store postgresql://…: needs the extra `postgres`: {extra}"
        if find_spec("asyncpg") is None
        else "dragoman: --store postgresql://…: a port in the URL of the database is not a number: write "
        "postgresql://user@host/database, with special characters of a password as %XX",
    ),
    Mistake(
        "misspelt the module",
        "serve ap:agent",
        "dragoman: there is no module `ap`; did you mean `app`?",
    ),
    Mistake(
        "made no agent",
        "serve other.py",
        'dragoman: `other.py` has nothing to serve: write `agent = Agent("other", description="…")` in it and mark '
        "functions with `@agent.skill`",
        files={"other.py": "x = 1\n"},
    ),
    Mistake(
        "gave the host's tools a database of servers",
        "mcp http://127.0.0.1:1 --store postgresql://me:hunter2@db/tasks",
        "dragoman: --store postgresql://…: `dragoman mcp` keeps what its host has asked for in a SQLite file of its "
        "own: use --store sqlite:///FILE, or leave it out",
    ),
    Mistake(
        "gave one server a limit that only several have",
        "serve app.py --limits-runs 0",
        "dragoman: --limits-runs: only servers that share a store have a limit of runs: use --store "
        "postgresql://user@host/database, or leave it out",
    ),
    Mistake(
        "took a port that is in use",
        "serve app.py --port {taken}",
        "dragoman: port {taken} is in use: use --port {free}, or --port 0 for any free one",
        then="serve app.py --port {free}",
    ),
    Mistake(
        "named a host that does not exist",
        "serve app.py --host no.such.host.invalid",
        "dragoman: host `no.such.host.invalid` cannot be resolved: use 127.0.0.1, or 0.0.0.0 for every network",
    ),
    Mistake(
        "named a host that is another machine's",
        "serve app.py --host 192.0.2.1",
        "dragoman: host 192.0.2.1 is not an address of this machine: use 127.0.0.1, or 0.0.0.0 for every network",
    ),
]


@pytest.fixture
def ports() -> Iterator[dict[str, int]]:
    """A port that is in use, and the next one, which is free."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port: int = taken.getsockname()[1]
            try:
                socket.create_server(("127.0.0.1", port + 1)).close()
            except (OSError, OverflowError):
                continue
            yield {"taken": port, "free": port + 1}
            return


@pytest.mark.parametrize("mistake", MISTAKES, ids=[mistake.did for mistake in MISTAKES])
def test_a_mistake_is_answered_with_what_to_type_instead(
    tmp_path: Path, run: Run, mistake: Mistake, ports: dict[str, int], monkeypatch: pytest.MonkeyPatch
):
    for name, text in {"app.py": SERVABLE, **mistake.files}.items():
        (tmp_path / name).write_text(text)
    done = run(*mistake.typed.format(**ports).split())
    assert (done.returncode, done.stdout) == (2, "")
    *lines, last = done.stderr.splitlines()
    if mistake.then:
        assert last.endswith(f"dragoman {mistake.then.format(**ports)}")
        last = lines[-2]
    # In that folder: what is below a folder is named from there.
    monkeypatch.chdir(tmp_path)
    assert last.endswith(mistake.prints.format(**ports, extra=install_line("postgres")))
    assert "Traceback" not in done.stderr
    assert "hunter2" not in done.stderr
