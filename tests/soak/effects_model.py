"""What must be true of a server that was killed many times: an independent model, fed with what callers and receivers
saw and with the effects the agent wrote down, and compared with what the last server says.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

SUBMITTED, WORKING = "TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"
COMPLETED, FAILED, CANCELED = "TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED"
FINAL = (COMPLETED, FAILED, CANCELED, "TASK_STATE_REJECTED")
# Skills whose code may be started again after a crash, and how often for one task. They begin before their task is
# durable: what was begun may be gone, and begins anew as another task when the message is sent again.
RESTARTS = {"again": 3}
IN_DOUBT = "may or may not have happened"


class Send(NamedTuple):
    """A message that somebody wanted to be done once, however often it was sent."""

    nonce: str
    skill: str
    message_id: str
    hook: bool


class Journal(NamedTuple):
    """A task as the last server has it."""

    id: str
    nonce: str
    state: str
    text: str
    reason: str
    events: dict[int, bytes]


class Model:
    """Collects what was seen. `wrong` has a line for everything that cannot be."""

    def __init__(self) -> None:
        self.sends: dict[str, Send] = {}
        self.wrong: list[str] = []
        self.acknowledged: dict[str, str] = {}
        self.events: dict[str, dict[int, bytes]] = defaultdict(dict)
        self.contents: dict[str, dict[int, Any]] = defaultdict(dict)
        self.finals: dict[str, tuple[str, str]] = {}
        self.answers: Counter[str] = Counter()

    # -- what callers saw ------------------------------------------------------------------------------------------

    def sent(self, send: Send) -> None:
        """Somebody is about to send this."""
        self.sends[send.nonce] = send

    def answered(self, nonce: str) -> None:
        """Somebody is about to answer this task's question, with a message of its own."""
        self.answers[nonce] += 1

    def took(self, nonce: str, task_id: str) -> None:
        """A caller received the task that a message has become."""
        known = self.acknowledged.setdefault(nonce, task_id)
        if known != task_id:
            self.wrong.append(f"{nonce} was task {known} and is {task_id}")

    def saw_state(self, task_id: str, state: str, text: str) -> None:
        """A caller received the state of a task, and its whole text if that is final."""
        if state in FINAL:
            known = self.finals.setdefault(task_id, (state, text))
            if known != (state, text):
                self.wrong.append(f"task {task_id} was {known} and is {(state, text)}")
        elif task_id in self.finals:
            self.wrong.append(f"task {task_id} was {self.finals[task_id]} and is {state}")

    def saw_event(self, task_id: str, number: int, data: bytes) -> None:
        """A caller received an event."""
        known = self.events[task_id].setdefault(number, data)
        if known != data:
            self.wrong.append(f"event {number} of task {task_id} was {known!r} and is {data!r}")

    def saw_content(self, task_id: str, number: int, content: Any) -> None:
        """A caller received an event from a client that does not show its bytes."""
        known = self.contents[task_id].setdefault(number, content)
        if known != content:
            self.wrong.append(f"event {number} of task {task_id} was {known!r} and is {content!r}")

    # -- what is left ----------------------------------------------------------------------------------------------

    def judge(
        self, journals: dict[str, Journal], effects: list[dict[str, Any]], hooks: dict[str, list[int]]
    ) -> list[str]:
        """Everything that is wrong, after the last server has come to rest."""
        for task_id in {*self.acknowledged.values(), *self.events, *self.contents, *self.finals} - set(journals):
            self.wrong.append(f"task {task_id} was acknowledged and is gone")
        for journal in journals.values():
            self._judge_journal(journal)
            self._judge_hooks(journal, hooks.get(journal.id, []))
        by_nonce: dict[str, set[str]] = defaultdict(set)
        for journal in journals.values():
            by_nonce[journal.nonce].add(journal.id)
        self.wrong += [f"{nonce} has become {len(ids)} tasks" for nonce, ids in by_nonce.items() if len(ids) > 1]
        self._judge_runs(journals, [line for line in effects if line["kind"] == "run"])
        self._judge_once(journals, effects)
        return self.wrong

    def _judge_journal(self, journal: Journal) -> None:
        numbers = list(journal.events)
        if numbers != list(range(1, len(numbers) + 1)):
            self.wrong.append(f"task {journal.id} has the events {numbers}")
        for number, data in self.events.get(journal.id, {}).items():
            if journal.events.get(number) != data:
                self.wrong.append(f"event {number} of task {journal.id} was acknowledged and is another or gone")
        for number, content in self.contents.get(journal.id, {}).items():
            data = journal.events.get(number)
            if data is None or content not in json.loads(data)["result"].values():
                self.wrong.append(f"event {number} of task {journal.id} was acknowledged and is another or gone")
        if journal.state in (SUBMITTED, WORKING):
            self.wrong.append(f"task {journal.id} stays {journal.state} with nobody at it")
        ends = [number for number, data in journal.events.items() if state_of(data) in FINAL]
        if ends and ends != numbers[-1:]:
            self.wrong.append(f"task {journal.id} went on after it had ended: events {ends} of {len(numbers)}")
        self.saw_state(journal.id, journal.state, journal.text)

    def _judge_hooks(self, journal: Journal, received: list[int]) -> None:
        send = self.sends.get(journal.nonce)
        if send is None or not send.hook:
            return
        first = list(dict.fromkeys(received))
        if first != sorted(first):
            self.wrong.append(f"the webhook of task {journal.id} received {received}")
        missing = owed(journal) - set(received)
        if missing:
            self.wrong.append(f"the webhook of task {journal.id} did not receive {sorted(missing)}")

    def _judge_runs(self, journals: dict[str, Journal], runs: list[dict[str, Any]]) -> None:
        ran = {line["nonce"] for line in runs}
        for journal in journals.values():
            if journal.state == COMPLETED and journal.nonce not in ran:
                self.wrong.append(f"task {journal.id} is completed and has never run")
        again = [line for line in runs if self.sends[line["nonce"]].skill in RESTARTS]
        for (nonce, task_id), number in Counter((line["nonce"], line["task"]) for line in again).items():
            if number > RESTARTS[self.sends[nonce].skill]:
                self.wrong.append(f"{nonce} was begun {number} times as task {task_id}")
        self._judge_single_runs(journals, [line for line in runs if line not in again])

    def _judge_single_runs(self, journals: dict[str, Journal], runs: list[dict[str, Any]]) -> None:
        counted = Counter((line["nonce"], line["message"]) for line in runs)
        for (nonce, message), number in counted.items():
            if number > 1:
                self.wrong.append(f"{self.sends[nonce].skill} {nonce} ran {number} times for message {message}")
        for nonce, number in Counter(nonce for nonce, _ in counted).items():
            if number > 1 + self.answers[nonce]:
                self.wrong.append(f"{nonce} ran for {number} messages, and had {self.answers[nonce]} answers")
        tasks: dict[str, set[str]] = defaultdict(set)
        for line in runs:
            tasks[line["nonce"]].add(line["task"])
        for nonce, ids in tasks.items():
            if len(ids) > 1:
                self.wrong.append(f"{nonce} ran as {len(ids)} tasks")
            if missing := ids - set(journals):
                self.wrong.append(f"{nonce} ran as {missing}, which nobody knows")

    def _judge_once(self, journals: dict[str, Journal], effects: list[dict[str, Any]]) -> None:
        began = Counter((line["nonce"], line["task"], line["key"]) for line in effects if line["kind"] == "begin")
        ended = {(line["nonce"], line["task"], line["key"]) for line in effects if line["kind"] == "end"}
        for (nonce, task_id, key), number in began.items():
            if number > 1:
                self.wrong.append(f"{key} of {self.sends[nonce].skill} {nonce} happened {number} times")
            journal = journals.get(task_id)
            if journal is None:
                self.wrong.append(f"{key} of {self.sends[nonce].skill} {nonce} happened in a task that nobody knows")
                continue
            if (nonce, task_id, key) in ended or journal.state == CANCELED:
                continue
            if journal.state != FAILED or IN_DOUBT not in journal.reason:
                self.wrong.append(
                    f"{key} of task {task_id} was begun and not ended, and it is {journal.state}: {journal.reason}"
                )


# -- reading what a server says --------------------------------------------------------------------------------------


def state_of(data: bytes) -> str | None:
    """The state that an event tells."""
    result = json.loads(data)["result"]
    event = result.get("statusUpdate") or result.get("task")
    return event["status"]["state"] if event else None


def text_of(task: dict[str, Any]) -> str:
    """The text of all artifacts of a task."""
    return "".join(part.get("text", "") for each in task.get("artifacts", ()) for part in each["parts"])


def reason_of(task: dict[str, Any]) -> str:
    """What a task's status says."""
    parts = task["status"].get("message", {}).get("parts", ())
    return "".join(part.get("text", "") for part in parts)


def nonce_of(task: dict[str, Any]) -> str:
    """Which message began a task."""
    return task["history"][0]["parts"][0]["data"]["nonce"]


def owed(journal: Journal) -> set[int]:
    """The events that a webhook must have received: every status after the task itself, and every finished artifact."""
    found: set[int] = set()
    for number, data in journal.events.items():
        result = json.loads(data)["result"]
        update = result.get("artifactUpdate")
        if "statusUpdate" in result or (update is not None and update.get("lastChunk")):
            found.add(number)
    return found


async def journals_of(load: Any, url: str) -> dict[str, Journal]:
    """Every task of a server, each once it has come to rest."""
    ids: list[str] = []
    params: dict[str, Any] = {"pageSize": 100}
    while True:
        page = (await load.ask(url, "ListTasks", params))[0]["result"]
        ids += [task["id"] for task in page["tasks"]]
        if not page["nextPageToken"]:
            break
        params = {"pageSize": 100, "pageToken": page["nextPageToken"]}
    gate = asyncio.Semaphore(16)

    async def read(task_id: str) -> Journal:
        async with gate:
            return await _journal(load, url, task_id)

    return {journal.id: journal for journal in await asyncio.gather(*(read(task_id) for task_id in ids))}


async def _journal(load: Any, url: str, task_id: str) -> Journal:
    task = (await load.ask(url, "GetTask", {"id": task_id}))[0]["result"]
    last = None
    if task["status"]["state"] not in (SUBMITTED, WORKING, *FINAL):
        # It waits for an answer that nobody will give: its journal ends where it is now.
        async for event in load.stream(url, "SubscribeToTask", {"id": task_id}):
            last = event.id
            break
    events: dict[int, bytes] = {}
    async with asyncio.timeout(load.SECONDS):
        async for event in load.stream(url, "SubscribeToTask", {"id": task_id}, 0):
            events[event.id] = event.data
            if event.id == last:
                break
    task = (await load.ask(url, "GetTask", {"id": task_id}))[0]["result"]
    return Journal(task_id, nonce_of(task), task["status"]["state"], text_of(task), reason_of(task), events)


def summary(
    model: Model, journals: Iterable[Journal], effects: list[dict[str, Any]], hooks: dict[str, list[int]]
) -> str:
    """What a run of all this was about, in a line."""
    journals = list(journals)
    states = Counter(journal.state.removeprefix("TASK_STATE_").lower() for journal in journals)
    seen = sum(map(len, (*model.events.values(), *model.contents.values())))
    doubt = sum(IN_DOUBT in journal.reason for journal in journals)
    kinds = Counter(line["kind"] for line in effects)
    return (
        f"{len(model.sends)} sends, {len(model.acknowledged)} acknowledged, {len(journals)} tasks ({dict(states)}, "
        f"{doubt} in doubt), {seen} events seen, effects {dict(kinds)}, {sum(map(len, hooks.values()))} webhooks"
    )
