"""What callers of the cluster received: everything that must still be true at the end."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from typing import Any, NamedTuple

SUBMITTED, WORKING, WAITING = "TASK_STATE_SUBMITTED", "TASK_STATE_WORKING", "TASK_STATE_INPUT_REQUIRED"
COMPLETED, FAILED, CANCELED = "TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED"
FINAL = (COMPLETED, FAILED, CANCELED, "TASK_STATE_REJECTED")


class Send(NamedTuple):
    """A message that somebody wants to be done once, however often it is sent."""

    nonce: str
    skill: str
    message_id: str


class Records:
    """Collects what callers saw. `wrong` has a line for everything that cannot be. Its nonces begin with `prefix`."""

    def __init__(self, prefix: str = "n") -> None:
        self.prefix = prefix
        self.sends: dict[str, Send] = {}
        self.tasks: dict[str, str] = {}
        self.events: dict[str, dict[int, bytes]] = defaultdict(dict)
        self.finals: dict[str, tuple[str, str]] = {}
        self.messages: dict[str, list[str]] = defaultdict(list)
        self.answers: Counter[str] = Counter()
        self.replies: dict[str, str] = {}
        self.conversations: dict[str, list[str]] = defaultdict(list)
        self.wrong: list[str] = []
        self.unanswered: list[str] = []
        # Answers cross each other: one that was asked for before an end was seen may still know nothing of it.
        self._ended_at: dict[str, float] = {}

    def accepted(self, nonce: str, task_id: str) -> None:
        """A message has become a task."""
        first = self.tasks.setdefault(nonce, task_id)
        if first != task_id:
            self.wrong.append(f"{nonce} was task {first} and is {task_id}")

    def message_accepted(self, task_id: str, message_id: str) -> None:
        """A task has got one more message."""
        self.messages[task_id].append(message_id)

    def saw(self, task: dict[str, Any], asked_at: float) -> str:
        """A caller was shown a task in answer to a request of that time. Returns its state."""
        task_id, state, text = task["id"], task["status"]["state"], text_of(task)
        final = self.finals.get(task_id)
        if final is not None and final != (state, text) and (state in FINAL or asked_at > self._ended_at[task_id]):
            self.wrong.append(f"task {task_id} was {final} and is {(state, text)}")
        if state in FINAL and final is None:
            self.finals[task_id] = (state, text)
            self._ended_at[task_id] = time.monotonic()
        return state

    def saw_event(self, task_id: str, number: int, data: bytes) -> None:
        """A caller was sent an event."""
        first = self.events[task_id].setdefault(number, data)
        if first != data:
            self.wrong.append(f"event {number} of task {task_id} was {first!r} and is {data!r}")

    def saw_reply(self, nonce: str, text: str) -> None:
        """A message was answered without a task."""
        first = self.replies.setdefault(nonce, text)
        if first != text:
            self.wrong.append(f"{nonce} was answered with {first!r} and then with {text!r}")


def text_of(task: dict[str, Any]) -> str:
    """All text of a task's artifacts."""
    return "".join(part.get("text", "") for each in task.get("artifacts", ()) for part in each["parts"])


def state_of(result: dict[str, Any]) -> str | None:
    """The state that an event brings, if it brings one."""
    status = result.get("statusUpdate") or result.get("task")
    return status["status"]["state"] if status else None


def decoded(data: bytes) -> Any:
    """The result in an event."""
    return json.loads(data)["result"]
