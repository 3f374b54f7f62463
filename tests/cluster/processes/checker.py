"""What must be true of a cluster after everything has happened to it. It asks no node: it compares the tables of
PostgreSQL, the effects that the agent wrote down, and what the callers received.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from cluster.processes.records import (
    CANCELED,
    COMPLETED,
    FAILED,
    FINAL,
    SUBMITTED,
    WORKING,
    Records,
    decoded,
    state_of,
)

# Skills whose code may be started again after the death of a node, and how often in all.
RESTARTS = {"again": 4}
IN_DOUBT = "may or may not have happened"
Effect = dict[str, Any]


class StoredJournal(NamedTuple):
    """A task as its tables have it."""

    id: str
    context_id: str
    state: str
    generation: int
    owner: int | None
    events: dict[int, bytes]
    messages: list[str]

    @property
    def nonce(self) -> str:
        """Which message began it."""
        return json.loads(self.events[1])["task"]["history"][0]["parts"][0]["data"]["nonce"]

    @property
    def text(self) -> str:
        """All text of its artifacts."""
        artifacts: dict[str, str] = {}
        for body in self.events.values():
            update = json.loads(body).get("artifactUpdate")
            if update is not None:
                key = update["artifact"]["artifactId"]
                before = artifacts.get(key, "") if update.get("append") else ""
                artifacts[key] = before + "".join(part.get("text", "") for part in update["artifact"]["parts"])
        return "".join(artifacts.values())

    @property
    def reason(self) -> str:
        """What its last status says."""
        parts = json.loads(self.events[self.generation]).get("statusUpdate", {}).get("status", {}).get("message", {})
        return "".join(part.get("text", "") for part in parts.get("parts", ()))


class StoredCluster(NamedTuple):
    """All tables, once everything has come to rest."""

    journals: Mapping[str, StoredJournal]
    drafts: int
    busy_contexts: int


class Checker:
    """Compares, and collects what is wrong."""

    def __init__(self, records: Records, stored: StoredCluster, effects: list[Effect]) -> None:
        self._records = records
        self.journals = {
            task_id: journal for task_id, journal in stored.journals.items() if journal.nonce.startswith(records.prefix)
        }
        self._stored = stored
        effects = [line for line in effects if line["nonce"].startswith(records.prefix)]
        self._runs = [line for line in effects if line["key"] == "run"]
        self._charges = [line for line in effects if line["key"] != "run"]
        self.wrong = list(records.unanswered)

    def judge(self) -> list[str]:
        """Everything that is wrong."""
        self.wrong += self._records.wrong
        self._nothing_acknowledged_is_lost()
        for journal in self.journals.values():
            self._journal_is_whole(journal)
        self._nothing_is_left_over()
        self._replies_are_no_tasks()
        self._code_began_at_most_once()
        self._effects_happened_at_most_once()
        self._contexts_are_in_order()
        self._working_tasks_got_their_messages()
        return self.wrong

    def judge_what_is_left(self) -> list[str]:
        """What is wrong although the database may have forgotten anything, from some moment on."""
        for journal in self.journals.values():
            self._journal_is_whole(journal)
            self._journal_is_of_one_run(journal)
        self._nothing_is_left_over()
        return self.wrong

    def _nothing_acknowledged_is_lost(self) -> None:
        records = self._records
        for task_id in {*records.tasks.values(), *records.events, *records.finals, *records.messages}:
            if task_id not in self._stored.journals:
                self.wrong.append(f"task {task_id} was acknowledged and is gone")
        for task_id, events in records.events.items():
            journal = self._stored.journals.get(task_id)
            for number, data in events.items() if journal is not None else ():
                body = journal.events.get(number)
                if body is None or json.loads(body) != decoded(data):
                    self.wrong.append(f"event {number} of task {task_id} was sent and is {body!r}, not {data!r}")
        for task_id, final in records.finals.items():
            journal = self._stored.journals.get(task_id)
            if journal is not None and (journal.state, journal.text) != final:
                self.wrong.append(f"task {task_id} was {final} and is {(journal.state, journal.text)}")
        for task_id, messages in records.messages.items():
            journal = self._stored.journals.get(task_id)
            for message in messages if journal is not None else ():
                if journal.messages.count(message) != 1:
                    self.wrong.append(
                        f"message {message} was accepted by task {task_id}, which has it "
                        f"{journal.messages.count(message)} times"
                    )

    def _journal_is_whole(self, journal: StoredJournal) -> None:
        numbers = list(journal.events)
        if numbers != list(range(1, journal.generation + 1)):
            self.wrong.append(f"task {journal.id} of generation {journal.generation} has the events {numbers}")
            return
        if journal.state in (SUBMITTED, WORKING):
            self.wrong.append(f"task {journal.id} stays {journal.state}")
        if journal.owner is not None:
            self.wrong.append(f"task {journal.id} is {journal.state} and has the owner {journal.owner}")
        states = {number: state_of(json.loads(body)) for number, body in journal.events.items()}
        ends = [number for number, state in states.items() if state in FINAL]
        if ends and ends != [journal.generation]:
            self.wrong.append(f"task {journal.id} went on after its end: {ends} of {journal.generation}")
        last = next(state for number, state in sorted(states.items(), reverse=True) if state)
        if last != journal.state:
            self.wrong.append(f"task {journal.id} is {journal.state} and its journal ends with {last}")

    def _journal_is_of_one_run(self, journal: StoredJournal) -> None:
        """Words come in order, and are those of the message that began the task."""
        words = [word.removeprefix(f"{journal.nonce}.") for word in journal.text.split()]
        if self._records.sends[journal.nonce].skill in ("talk", "again") and words != [*map(str, range(len(words)))]:
            self.wrong.append(f"task {journal.id} of {journal.nonce} has the words {journal.text!r}")

    def _nothing_is_left_over(self) -> None:
        if self._stored.drafts:
            self.wrong.append(f"{self._stored.drafts} drafts are left")
        if self._stored.busy_contexts:
            self.wrong.append(f"{self._stored.busy_contexts} contexts are occupied by nobody")
        by_nonce = Counter(journal.nonce for journal in self.journals.values())
        self.wrong += [f"{nonce} has become {number} tasks" for nonce, number in by_nonce.items() if number > 1]

    def _replies_are_no_tasks(self) -> None:
        """Unless the database has forgotten a reply: then its draft is there again, and a node makes a task of it."""
        nonces = {journal.nonce for journal in self.journals.values()}
        for nonce in nonces.intersection(self._records.replies):
            self.wrong.append(f"{nonce} was answered without a task, and is one")

    def _code_began_at_most_once(self) -> None:
        began = Counter((line["nonce"], line["task"], line["message"]) for line in self._runs if _began(line))
        for (nonce, task_id, message), number in began.items():
            skill = self._records.sends[nonce].skill
            if number > RESTARTS.get(skill, 1):
                self.wrong.append(f"{skill} {nonce} began {number} times for message {message} of task {task_id}")
        tasks: dict[str, set[str]] = defaultdict(set)
        for nonce, task_id, _ in began:
            tasks[nonce].add(task_id)
        for nonce, ids in tasks.items():
            if len(ids) > 1:
                self.wrong.append(f"{self._records.sends[nonce].skill} {nonce} ran as {len(ids)} tasks")
            if nonce not in self._records.replies and not ids <= set(self.journals):
                self.wrong.append(f"{self._records.sends[nonce].skill} {nonce} ran as a task that does not exist")
        for journal in self.journals.values():
            if journal.state == COMPLETED and journal.nonce not in tasks:
                self.wrong.append(f"task {journal.id} is completed and has never run")

    def _effects_happened_at_most_once(self) -> None:
        began = Counter((line["nonce"], line["task"], line["key"]) for line in self._charges if _began(line))
        ended = {(line["nonce"], line["task"], line["key"]) for line in self._charges if not _began(line)}
        for (nonce, task_id, key), number in began.items():
            name = f"{key} of {self._records.sends[nonce].skill} {nonce}, task {task_id},"
            if number > 1:
                self.wrong.append(f"{name} happened {number} times")
            journal = self.journals.get(task_id)
            if journal is None:
                self.wrong.append(f"{name} happened in a task that does not exist")
            elif (nonce, task_id, key) not in ended and journal.state not in (FAILED, CANCELED):
                self.wrong.append(f"{name} was begun and not ended, and the task is {journal.state}")

    def _contexts_are_in_order(self) -> None:
        begins = {line["nonce"]: line["at"] for line in reversed(self._runs) if _began(line)}
        ends = {line["nonce"]: line["at"] for line in self._runs if not _began(line)}
        for context, nonces in self._records.conversations.items():
            ran = [nonce for nonce in nonces if nonce in begins]
            for first, second in pairwise(ran):
                if begins[first] > begins[second]:
                    self.wrong.append(f"in context {context}, {second} ran before {first}")
            # A node that was declared dead may not know it yet: only what completed held the context to its end.
            completed = [nonce for nonce in ran if self.journals[self._records.tasks[nonce]].state == COMPLETED]
            for first, second in pairwise(completed):
                if ends.get(first, 0) > begins[second]:
                    self.wrong.append(f"in context {context}, {second} began before {first} had ended")
            self._state_is_complete(context, completed)

    def _state_is_complete(self, context: str, completed: list[str]) -> None:
        for place, nonce in enumerate(completed):
            text = self.journals[self._records.tasks[nonce]].text
            if text.split() != completed[: place + 1]:
                self.wrong.append(f"in context {context}, {nonce} found {text!r} and not {completed[:place]}")

    def _working_tasks_got_their_messages(self) -> None:
        for journal in self.journals.values():
            listened = self._records.sends[journal.nonce].skill == "listen" and journal.state == COMPLETED
            if listened and journal.text != f"{journal.nonce}: one two over":
                self.wrong.append(f"listen {journal.nonce}, task {journal.id}, completed with {journal.text!r}")


def _began(line: Effect) -> bool:
    return line["kind"] == "begin"


def failures(journals: Iterable[StoredJournal]) -> list[str]:
    """The tasks that have failed, and why: a line each."""
    return [f"{journal.nonce}, task {journal.id}: {journal.reason}" for journal in journals if journal.state == FAILED]


def summary(records: Records, stored: StoredCluster, effects: list[Effect]) -> str:
    """What all of it was about, in a line."""
    states = Counter(journal.state.removeprefix("TASK_STATE_").lower() for journal in stored.journals.values())
    seen = sum(map(len, records.events.values()))
    return (
        f"{len(records.sends)} messages, {len(stored.journals)} tasks {dict(states)}, {len(records.replies)} replies, "
        f"{seen} events seen by callers, {sum(len(each.events) for each in stored.journals.values())} stored, "
        f"{len(effects)} effect lines"
    )
