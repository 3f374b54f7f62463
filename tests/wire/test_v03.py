"""A2A 0.3: what a message means that does not say whether it blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dragoman.testing import served

SPEAKERS = ["0.3-rpc"]


# -- what 0.3 leaves to the server -------------------------------------------------------------------------------------


@pytest.mark.parametrize("configuration", [{}, {"blocking": True}, {"acceptedOutputModes": ["text/plain"]}])
def test_a_message_blocks_by_default(speaker: Any, configuration: Any) -> None:
    assert speaker.send("hi", configuration=configuration).result["status"]["state"] == "completed"


@pytest.mark.parametrize("name", ["0.3-rpc", "0.3-rest"])
def test_a_setting_flips_what_a_message_without_blocking_means(
    wire: Any, new_agent: Callable[..., Any], name: str
) -> None:
    with served(new_agent(), blocking=False, drain=0) as url:
        speaker = wire.at(url).speaker(name)
        assert speaker.state(speaker.send(tool="slow")) in ("submitted", "working")
        assert speaker.state(speaker.send("hi", configuration={"blocking": True})) == "completed"
