"""The checker notices everything that it is there for: one that notices nothing would prove nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from cluster.processes.checker import Checker, StoredCluster, StoredJournal
from cluster.processes.records import COMPLETED, FAILED, WORKING, Records, Send


class World:
    """One task of each kind, everything about it in order; a test changes one thing."""

    def __init__(self) -> None:
        self.records = Records()
        self.journals: dict[str, StoredJournal] = {}
        self.effects: list[dict[str, Any]] = []
        self.drafts = self.busy_contexts = 0
        self.at = 0.0
        self.add("n1", "pay", "pay")
        for key in ("debit", "credit"):
            self.effect("begin", "n1", key)
            self.effect("end", "n1", key)
        self.add("n2", "converse", "n2")
        self.add("n3", "converse", "n2 n3")
        self.records.conversations["c"] = ["n2", "n3"]
        self.add("n4", "listen", "n4: one two over")
        self.records.messages["n4"] = ["m-over"]
        self.journals["n4"].messages.append("m-over")
        self.records.events["n1"] = {2: _response(json.loads(self.journals["n1"].events[2]))}
        self.records.finals["n1"] = (COMPLETED, "pay")

    def add(self, nonce: str, skill: str, text: str) -> None:
        self.records.sends[nonce] = Send(nonce, skill, f"m-{nonce}")
        self.records.tasks[nonce] = nonce
        task = {"history": [{"parts": [{"data": {"nonce": nonce}}]}], "status": {"state": "TASK_STATE_SUBMITTED"}}
        artifact = {"artifactId": "a", "parts": [{"text": text}]}
        events = {1: {"task": task}, 2: {"artifactUpdate": {"artifact": artifact}}, 3: _status(COMPLETED)}
        bodies = {number: json.dumps(event).encode() for number, event in events.items()}
        self.journals[nonce] = StoredJournal(nonce, "c", COMPLETED, 3, None, bodies, [])
        self.effect("begin", nonce, "run", message=f"m-{nonce}")
        self.effect("end", nonce, "run", message=f"m-{nonce}")

    def effect(self, kind: str, nonce: str, key: str, **more: Any) -> None:
        self.at += 1
        self.effects.append({"kind": kind, "key": key, "nonce": nonce, "task": nonce, "at": self.at, **more})

    def change(self, nonce: str, **fields: Any) -> None:
        self.journals[nonce] = self.journals[nonce]._replace(**fields)

    def set_event(self, nonce: str, number: int, event: dict[str, Any]) -> None:
        self.journals[nonce].events[number] = json.dumps(event).encode()

    def wrong(self) -> list[str]:
        stored = StoredCluster(self.journals, self.drafts, self.busy_contexts)
        return Checker(self.records, stored, self.effects).judge()


def _status(state: str) -> dict[str, Any]:
    return {"statusUpdate": {"status": {"state": state}}}


def _response(result: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode()


def test_a_cluster_in_order_is_in_order() -> None:
    assert World().wrong() == []


FAULTS: dict[str, tuple[Callable[[World], object], str]] = {
    "a task is lost": (lambda w: w.journals.pop("n4"), "acknowledged and is gone"),
    "an event is lost": (lambda w: w.journals["n1"].events.pop(2), "was sent and is"),
    "an event has changed": (lambda w: w.set_event("n1", 2, {}), "was sent and is"),
    "an end has changed": (lambda w: w.records.finals.update(n1=(FAILED, "pay")), "was ('TASK_STATE_FAILED'"),
    "a message is lost": (lambda w: w.journals["n4"].messages.clear(), "has it 0 times"),
    "a message is there twice": (lambda w: w.journals["n4"].messages.append("m-over"), "has it 2 times"),
    "a journal has a gap": (lambda w: w.journals["n2"].events.pop(2), "has the events [1, 3]"),
    "a journal is too long": (lambda w: w.set_event("n2", 4, _status(COMPLETED)), "has the events [1, 2, 3, 4]"),
    "a task stays at work": (lambda w: w.change("n2", state=WORKING), "stays TASK_STATE_WORKING"),
    "a task keeps its owner": (lambda w: w.change("n2", owner=7), "has the owner 7"),
    "a task goes on after its end": (lambda w: w.set_event("n2", 2, _status(FAILED)), "went on after its end"),
    "the row is not the journal": (lambda w: w.change("n2", state=FAILED), "ends with TASK_STATE_COMPLETED"),
    "a draft is left": (lambda w: setattr(w, "drafts", 1), "1 drafts"),
    "a context stays occupied": (lambda w: setattr(w, "busy_contexts", 1), "1 contexts"),
    "a message became two tasks": (lambda w: w.journals.update(x=w.journals["n1"]), "has become 2 tasks"),
    "a reply is a task too": (lambda w: w.records.saw_reply("n1", "hello"), "answered without a task"),
    "code began twice": (lambda w: w.effect("begin", "n1", "run", message="m-n1"), "began 2 times"),
    "code never ran": (lambda w: w.effects.__delitem__(slice(2)), "has never run"),
    "an effect happened twice": (lambda w: w.effect("begin", "n1", "debit"), "happened 2 times"),
    "an effect has no end": (
        lambda w: w.effects.remove(next(e for e in w.effects if (e["kind"], e["key"]) == ("end", "debit"))),
        "begun and not ended",
    ),
    "a context is out of order": (lambda w: w.records.conversations["c"].reverse(), "ran before"),
    "runs of a context overlap": (lambda w: w.effect("end", "n2", "run", message="m-n2"), "before n2 had ended"),
    "a conversation forgets": (
        lambda w: w.set_event("n3", 2, {"artifactUpdate": {"artifact": {"artifactId": "a", "parts": []}}}),
        "n3 found ''",
    ),
    "words did not arrive": (
        lambda w: w.set_event("n4", 2, {"artifactUpdate": {"artifact": {"artifactId": "a", "parts": []}}}),
        "listen n4",
    ),
    "a caller saw something": (lambda w: w.records.wrong.append("event 4 came after 2"), "event 4"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_it_notices(fault: str) -> None:
    world = World()
    change, text = FAULTS[fault]
    change(world)
    wrong = world.wrong()
    assert any(text in line for line in wrong), wrong
