"""The clients of a2a-java against our server: the stable one of 0.3, and an alpha of 1.0, which parses strictly."""

from __future__ import annotations

import subprocess

import pytest
from interop.agents import agent
from interop.field import INSTALLED, PROGRAMS

from dragoman.testing import served

SECONDS = 60
JAVA = INSTALLED / "java"

pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(SECONDS + 10),
    pytest.mark.skipif(not (JAVA / "ready").exists(), reason="no .peers/java: run `make interop`, with mvn"),
]


def asked(url: str, version: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = PROGRAMS / "java" / "Client.java"
    command = ["java", "-cp", f"{JAVA / version}/*", str(program), url, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


@pytest.mark.parametrize("how", ["send", "stream"])
@pytest.mark.parametrize("transport", ["JSONRPC", "HTTP+JSON"])
@pytest.mark.parametrize("version", ["0.3", "1.0"])
def test_a_java_client_reads_the_card_and_gets_an_answer(version: str, transport: str, how: str) -> None:
    # The alpha refuses members it does not know, and does not say that it reads 1.0 unless it is set to.
    named = ("A2A-Version=1.0",) if version == "1.0" else ()
    with served(agent) as url:
        done = asked(url, version, transport, how, "hello there", *named)
    assert done.stdout.splitlines() == ["interop", "hello there"], done.stderr


def test_the_alpha_refuses_a_card_of_both_versions() -> None:
    """When it does not any more, it needs no header."""
    with served(agent) as url:
        done = asked(url, "1.0", "JSONRPC", "send", "hello")
    assert "protocolVersion in message a2a.v1.AgentCard" in done.stderr
