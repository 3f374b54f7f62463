"""Well-known command-line agents (`profile`) that have gone wrong, behind a real server: none of them harms it."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from faults import program_server as at

from dragoman import Client, State

pytestmark = [pytest.mark.fault, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

HERE = Path(__file__).parent
PROFILES = ("codex", "gemini", "opencode", "claude")
# Those of whose lines each is an event, and those of whose lines all are one text.
KINDS = [*PROFILES[:2], *(pytest.param(name, marks=pytest.mark.soak) for name in PROFILES[2:])]
MB = 1_000_000
SECRETS = {"DRAGOMAN_SECRET": "the secret of the server", "AWS_SECRET_ACCESS_KEY": "k", "PGPASSWORD": "p"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    program = [sys.executable, "-IS", str(HERE / "hostile_profile.py")]
    limits = {"grace": 0.2, "time": 3}
    agents = {name: {"profile": name, "command": [*program, name], "limits": limits} for name in PROFILES}
    agents["deaf"] = {"profile": "codex", "command": [*program, "codex"], "limits": {"grace": 0.2, "time": 0.3}}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SECRETS.items():
            patch.setenv(name, value)
        patch.setenv("OPENAI_API_KEY", "meant for codex and opencode")
        with at.served(tmp_path_factory.mktemp("profiles"), agents) as server:
            yield server
            server.until_idle()


async def run(server: Any, agent: str, how: str) -> Any:
    async with Client(f"{server.url}/agents/{agent}") as client:
        return await client.send(how)


@asynccontextmanager
async def watched(server: Any) -> AsyncIterator[list[float]]:
    """Ask a server for its health, again and again, and note how long each answer took."""
    times: list[float] = []

    async def ask() -> None:
        async with httpx2.AsyncClient(base_url=server.url, timeout=30) as http:
            while True:
                began = time.monotonic()
                (await http.get("/healthz")).raise_for_status()
                times.append(time.monotonic() - began)
                await asyncio.sleep(0.01)

    asking = asyncio.create_task(ask())
    yield times
    asking.cancel()
    assert await asyncio.gather(asking, return_exceptions=True) != []
    assert times


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("how", ["no_json", "no_text", "nested", "leaves_a_child", "babbles_on_stderr"])
async def test_other_output_of_a_program_does_not_hide_its_answer(server: Any, profile: str, how: str) -> None:
    task = await run(server, profile, how)
    assert (task.state, task.text.endswith("fine")) == (State.COMPLETED, True)


@pytest.mark.parametrize("profile", KINDS)
@pytest.mark.parametrize("how", ["endless_line", "endless_lines"])
async def test_an_output_without_end_fails_at_its_limit_and_takes_little_memory(
    server: Any, profile: str, how: str
) -> None:
    before = at.forget_peak(server.pid)
    async with watched(server) as times:
        task = await run(server, profile, how)
    assert task.state is State.FAILED
    # Each of its lines may be an event, and few machines store a hundred thousand of them in three seconds.
    assert task.error in ("the program wrote more than 10 MB to its standard output", "the program ran longer than 3 s")
    assert at.memory(server.pid, "VmHWM") - before < 200 * MB
    assert max(times) < 1


@pytest.mark.parametrize("profile", KINDS)
async def test_a_hundred_thousand_tiny_pieces_stall_nobody(server: Any, profile: str) -> None:
    async with watched(server) as times:
        began = time.monotonic()
        task = await run(server, profile, "tiny_pieces")
        took = time.monotonic() - began
    print(f"{profile}: {took:.1f} s, {len(task.text)} characters, longest wait {max(times) * 1000:.0f} ms")
    assert task.state in (State.COMPLETED, State.FAILED)
    assert max(times) < 1


@pytest.mark.parametrize("profile", PROFILES)
async def test_a_program_that_breaks_off_fails_with_its_code_and_last_words(server: Any, profile: str) -> None:
    task = await run(server, profile, "breaks_off")
    assert (task.state, task.error) == (State.FAILED, "the program ended with exit code 3: out of luck")


@pytest.mark.parametrize("profile", PROFILES)
async def test_a_very_long_error_is_shortened(server: Any, profile: str) -> None:
    task = await run(server, profile, "long_problem")
    assert task.state is State.FAILED
    assert len(task.error) < 10_000


async def test_a_program_that_is_deaf_is_killed_in_time(server: Any) -> None:
    task = await run(server, "deaf", "deaf")
    assert (task.state, task.error) == (State.FAILED, "the program ran longer than 0.3 s")


@pytest.mark.parametrize("profile", PROFILES)
async def test_a_program_can_tell_no_secret_of_the_server(server: Any, profile: str) -> None:
    seen = json.loads((await run(server, profile, "environment")).text)
    assert not SECRETS.keys() & seen.keys()
    assert ("OPENAI_API_KEY" in seen) == (profile in ("codex", "opencode"))


@pytest.mark.parametrize("profile", PROFILES)
async def test_control_characters_of_an_answer_are_data(server: Any, profile: str) -> None:
    task = await run(server, profile, "controls")
    assert task.state is State.COMPLETED
    assert task.text.endswith("fine")
