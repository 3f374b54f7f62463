"""What an agent without a memory of its own remembers of a conversation."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import msgspec

from dragoman.agents.text import ConversationHistory


def _memory(most: int) -> tuple[ConversationHistory, dict[str, Any]]:
    ctx: Any = SimpleNamespace(state={}, log=logging.getLogger("dragoman.agent"))
    return ConversationHistory(ctx, "kept", most), ctx.state


def test_turns_are_remembered_in_order() -> None:
    memory, state = _memory(1000)
    assert memory.messages == []
    memory.add(["hi", "hello"])
    memory.add(["and?", "so"])
    assert memory.messages == ["hi", "hello", "and?", "so"]
    assert state == {"kept": [["hi", "hello"], ["and?", "so"]]}


def test_the_oldest_turns_go_first_and_whole() -> None:
    memory, state = _memory(100)
    for number in range(50):
        memory.add([f"question {number}", f"answer {number}"])
    assert memory.turns[-1] == ["question 49", "answer 49"]
    assert all(len(turn) == 2 for turn in memory.turns)
    assert 50 < len(msgspec.json.encode(state["kept"])) <= 101


def test_a_turn_that_is_too_large_is_not_remembered_and_the_others_are(caplog: Any) -> None:
    memory, _ = _memory(100)
    memory.add(["small"])
    memory.add(["x" * 200])
    memory.add(["also small"])
    assert memory.messages == ["small", "also small"]
    assert "not stored" in caplog.text
