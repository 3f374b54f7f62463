"""Dragoman's bridges on the first line of google-adk, which many still use."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".peers" / "adk-1" / "bin" / "python"

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not PYTHON.exists(), reason="google-adk 1.x is not installed: make interop"),
]


@pytest.mark.smoke
def test_an_agent_of_the_first_line_is_served_pauses_and_works_with_remote_ones() -> None:
    done = subprocess.run(
        [PYTHON, Path(__file__).parent / "peers" / "adk_1_script.py"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OTEL_SDK_DISABLED": "true"},
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    version, served, paused, resumed, *said = [json.loads(line) for line in done.stdout.splitlines()]
    assert version["version"].startswith("1.")
    assert served == {"served": "heard hello", "state": "TASK_STATE_COMPLETED"}
    assert paused == {"paused": "TASK_STATE_INPUT_REQUIRED"}
    assert resumed["resumed"] == "The answer is yes" and resumed["chunks"] > 1
    assert [(each["author"], each["said"].splitlines()[0]) for each in said] == [
        ("local", "heard hi"),
        ("far", "heard hi"),
    ]
