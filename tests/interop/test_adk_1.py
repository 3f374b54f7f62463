"""Dragoman's bridges on older versions of google-adk, which many still use."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from interop.field import ADKS, PROGRAMS, Peer

SRC = Path(__file__).resolve().parents[2] / "src"

pytestmark = pytest.mark.interop


@pytest.mark.smoke
@pytest.mark.parametrize("adk", ADKS[:-1], ids=str)
def test_an_agent_of_an_older_version_is_served_pauses_and_works_with_remote_ones(adk: Peer) -> None:
    if adk.missing:
        pytest.skip(adk.missing)
    done = subprocess.run(
        [adk.server[0], PROGRAMS / "adk_1_script.py"],
        env={**os.environ, "PYTHONPATH": str(SRC), "OTEL_SDK_DISABLED": "true"},
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    version, served, paused, resumed, *events = [json.loads(line) for line in done.stdout.splitlines()]
    assert version["version"] == adk.version
    assert served == {"served": "heard hello", "state": "TASK_STATE_COMPLETED"}
    assert paused == {"paused": "TASK_STATE_INPUT_REQUIRED"}
    assert resumed["resumed"] == "The answer is yes" and resumed["chunks"] > 1
    assert [(each["author"], each["text"].splitlines()[0]) for each in events] == [
        ("local", "heard hi"),
        ("far", "heard hi"),
    ]
