"""Our server driven by the official client of a2a-sdk, which lives in an environment of its own."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dragoman.testing import served

HERE = Path(__file__).parent
PEER_PYTHON = HERE.parents[1] / ".peers" / "a2a-sdk" / "bin" / "python"
DRIVER = HERE / "peers" / "a2a_sdk_driver.py"
DRIVER_TIMEOUT = 120

pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(DRIVER_TIMEOUT + 10),
    pytest.mark.skipif(not PEER_PYTHON.exists(), reason="no .peers/a2a-sdk: run `make interop`"),
]


def load_agents() -> ModuleType:
    # By path: the plain name `agents` belongs to the package openai-agents.
    spec = importlib.util.spec_from_file_location("interop_agents", HERE / "agents.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def text(output: str | bytes | None) -> str:
    return output.decode() if isinstance(output, bytes) else output or ""


def drive(*arguments: str) -> tuple[list[dict[str, Any]], str]:
    """The cases the driver printed, and whatever else it had to say."""
    agents = load_agents()
    with served(agents.guarded, auth=agents.authenticate, push_allow=["127.0.0.1"]) as url:
        try:
            done = subprocess.run(
                [PEER_PYTHON, DRIVER, url, *arguments],
                capture_output=True,
                text=True,
                timeout=DRIVER_TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            pytest.fail(f"the driver did not end:\n{text(late.stdout)}{text(late.stderr)}")
    cases = [json.loads(line) for line in done.stdout.splitlines()]
    return cases, f"exit code {done.returncode}\n{done.stderr}"


def assert_all_ok(cases: list[dict[str, Any]], rest: str) -> None:
    failing = [json.dumps(case) for case in cases if not case["ok"]]
    assert not failing, "\n".join([*failing, rest])
    assert len(cases) > 1, rest  # the first line is only the card
    assert rest.startswith("exit code 0\n"), rest


@pytest.mark.parametrize("protocol", ["1.0", "0.3"])
@pytest.mark.parametrize("transport", ["jsonrpc", "rest"])
def test_the_official_client_gets_what_it_expects(transport: str, protocol: str) -> None:
    assert_all_ok(*drive("--transport", transport, "--protocol", protocol))


@pytest.mark.smoke
def test_the_official_client_sends_a_message() -> None:
    assert_all_ok(*drive("--transport", "jsonrpc", "--protocol", "1.0", "--only", "send"))
