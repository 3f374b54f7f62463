"""Callers of the cluster. Each does one thing after the other through the balancer, and repeats what was not answered
with the same message id until it is; what they receive goes into the records.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from contextlib import aclosing, suppress
from random import Random
from typing import Any
from uuid import UUID

from cluster.processes.http import Answer, Lost, Refused, ask, stream
from cluster.processes.records import CANCELED, FINAL, WAITING, Records, Send, state_of

SECONDS = 180
IMPATIENT_SECONDS = 0.02
SKILLS = ("quick", "quick", "talk", "talk", "plan", "plan", "pay", "again", "again")
NOT_CANCELABLE, UNSUPPORTED = -32002, -32004


class Callers:
    """A number of callers, and the chance that decides what they do.

    With `nodes_stop`, a node may end a stream before its end, because it stops: the caller resumes it at another.
    With `lossy`, the cluster may forget what it has answered, so that nothing surprises them. But they are answered.
    `retries` counts how many requests were repeated how often, and streams how often in a row. `lost_again` says when
    those were lost that were repeated before: the time before, and the time now.
    """

    def __init__(
        self,
        url: str,
        records: Records,
        random: Random,
        longest_ms: int = 2000,
        *,
        nodes_stop: bool = False,
        lossy: bool = False,
    ) -> None:
        self.url = url
        self.lossy = lossy
        self.records = records
        self.random = random
        self.longest_ms = longest_ms
        self.nodes_stop = nodes_stop
        self.counted: Counter[str] = Counter()
        self.retries: Counter[int] = Counter()
        self.lost_again: list[tuple[float, float]] = []
        self.reasons: Counter[str] = Counter()
        self.done = 0
        self._changed = asyncio.Condition()
        self._parked: deque[tuple[str, str]] = deque()
        self._asked: dict[asyncio.Task[Any] | None, str] = {}
        self._acts = (
            *(self._send, self._send_and_look, self._stream, self._stream, self._cancel),
            *(self._answer, self._answer, self._converse, self._greet, self._talk_to_a_working_task, self._read),
        )

    async def until(self, over: asyncio.Event, number: int) -> None:
        """Let so many callers do things until it is over, and finish what they have begun."""
        await asyncio.gather(*(self._work(over) for _ in range(number)))

    async def _work(self, over: asyncio.Event) -> None:
        while not over.is_set():
            act = self.random.choice(self._acts)
            try:
                async with asyncio.timeout(SECONDS):
                    await act()
            except TimeoutError:
                asked = self._asked[asyncio.current_task()]
                self.records.unanswered.append(f"{act.__name__} was not done within {SECONDS} s: {asked}")
            except (Refused, AssertionError, LookupError) as error:
                if not self.lossy:
                    self.records.wrong.append(f"{act.__name__} was refused: {error!r}")
            self.counted[act.__name__.strip("_")] += 1
            async with self._changed:
                self.done += 1
                self._changed.notify_all()

    async def until_done(self, more: int) -> None:
        """Wait until callers have done so many more things."""
        goal = self.done + more
        async with asyncio.timeout(SECONDS), self._changed:
            await self._changed.wait_for(lambda: self.done >= goal)

    async def end(self, task_id: str) -> None:
        """Cancel a task, unless it has ended."""
        with suppress(Refused):
            await self._ask("CancelTask", {"id": task_id})

    async def write_at(self, url: str) -> float:
        """Send something to one node until it is acknowledged. Returns when it was, on the monotonic clock."""
        send, message = self._new("quick")
        while True:
            try:
                self._accepted(send, await ask(url, "SendMessage", _immediately(message)))
            except Lost:
                await asyncio.sleep(IMPATIENT_SECONDS)
            else:
                return time.monotonic()

    # -- what they do --------------------------------------------------------------------------------------------------

    async def _send(self) -> None:
        """Send, and wait for the end."""
        send, message = self._new(self.random.choice(SKILLS))
        self._accepted(send, await self._ask("SendMessage", {"message": message}))

    async def _send_and_look(self) -> None:
        """Send without waiting, and follow the task from another connection."""
        send, message = self._new(self.random.choice(SKILLS))
        task = self._accepted(send, await self._ask("SendMessage", _immediately(message)))
        if task is not None:
            await self._follow(send.nonce, "SubscribeToTask", {"id": task["id"]})

    async def _stream(self) -> None:
        """Send, and read the stream to its end."""
        send, message = self._new(self.random.choice(("talk", "talk", "again", "plan", "quick")))
        await self._follow(send.nonce, "SendStreamingMessage", {"message": message})

    async def _cancel(self) -> None:
        """Begin something and cancel it."""
        send, message = self._new(self.random.choice(("wait", "wait", "talk", "again")))
        task = self._accepted(send, await self._ask("SendMessage", _immediately(message)))
        assert task is not None
        try:
            answer = await self._ask("CancelTask", {"id": task["id"]})
        except Refused as error:
            if error.code != NOT_CANCELABLE:
                raise
            await self._must_have_ended(task["id"], error)
            return
        if self._saw(answer) != CANCELED:
            self.records.wrong.append(f"task {task['id']} was canceled and is {answer.result['status']['state']}")

    async def _answer(self) -> None:
        """Answer the question of a task that waits."""
        if not self._parked:
            await self._send()
            return
        nonce, task_id = self._parked.popleft()
        if self._saw(await self._get(task_id)) != WAITING:
            return
        self.records.answers[nonce] += 1
        message = self._message([{"text": "yes"}], taskId=task_id)
        answer = await self._ask("SendMessage", {"message": message})
        self.records.message_accepted(task_id, message["messageId"])
        self.records.saw(answer.result["task"], answer.asked_at)

    async def _converse(self) -> None:
        """Send several messages in one context, each when the one before is accepted, and wait for all."""
        context: str | None = None
        tasks: list[tuple[str, str]] = []
        for _ in range(self.random.randint(2, 4)):
            send, message = self._new("converse", **({"contextId": context} if context else {}))
            task = self._accepted(send, await self._ask("SendMessage", _immediately(message)))
            assert task is not None
            context = task["contextId"]
            self.records.conversations[context].append(send.nonce)
            tasks.append((send.nonce, task["id"]))
        for nonce, task_id in tasks:
            await self._follow(nonce, "SubscribeToTask", {"id": task_id})

    async def _greet(self) -> None:
        """Send what is answered without a task, twice."""
        send, message = self._new("greet")
        for _ in range(2):
            answer = await self._ask("SendMessage", {"message": message})
            if "message" in answer.result:
                text = "".join(part.get("text", "") for part in answer.result["message"]["parts"])
                self.records.saw_reply(send.nonce, text)
            else:
                self._accepted(send, answer)

    async def _talk_to_a_working_task(self) -> None:
        """Send messages to a task that is at work."""
        send, message = self._new("listen")
        task = self._accepted(send, await self._ask("SendMessage", _immediately(message)))
        assert task is not None
        for text in ("one", "two", "over"):
            words = self._message([{"text": text}], taskId=task["id"])
            try:
                answer = await self._ask("SendMessage", _immediately(words))
            except Refused as error:
                await self._must_have_ended(task["id"], error)
                return
            self.records.message_accepted(task["id"], words["messageId"])
            self.records.saw(answer.result["task"], answer.asked_at)
        await self._follow(send.nonce, "SubscribeToTask", {"id": task["id"]})

    async def _read(self) -> None:
        """Look at tasks, old and new."""
        page = await self._ask("ListTasks", {"pageSize": 20, "includeArtifacts": True})
        for task in page.result["tasks"]:
            self.records.saw(task, page.asked_at)
        if self.records.tasks:
            self._saw(await self._get(self.random.choice(list(self.records.tasks.values()))))

    # -- how they do it ------------------------------------------------------------------------------------------------

    async def _follow(self, nonce: str, method: str, params: dict[str, Any]) -> None:
        """Read a stream, over as many connections as it takes, until the task has ended or waits."""
        task_id, before, state = self.records.tasks.get(nonce, ""), None, None
        tries, lost_at = 0, 0.0
        while True:
            asked_at = time.monotonic()
            self._asked[asyncio.current_task()] = f"{method} {params} after {before}"
            try:
                async with aclosing(stream(self.url, method, params, before)) as events:
                    async for event in events:
                        result = event.result
                        if before is not None and event.id != before + 1:
                            self.records.wrong.append(f"event {event.id} of {nonce} came after {before}")
                        before, tries = event.id, 0
                        task_id = task_id or result["task"]["id"]
                        self.records.accepted(nonce, task_id)
                        # The stream of a repeated message begins with the first record, too: that is no state of now.
                        is_record = "task" not in result or (event.id == 1 and method == "SendStreamingMessage")
                        if is_record:
                            self.records.saw_event(task_id, event.id, event.data)
                        else:
                            self.records.saw(result["task"], asked_at)
                        state = state_of(result) or state
                        if state == WAITING:
                            self._parked.append((nonce, task_id))
                            return
                if self._is_over(f"the stream of {nonce} ended with event {before}", state):
                    return
                await self._pause("stream ended")
            except Lost as error:
                tries += 1
                lost_at = self._repeats(tries, error, lost_at)
                await self._pause("stream lost")
            except Refused as error:
                # Of an ended task, there is nothing left to subscribe to.
                if not task_id or error.code != UNSUPPORTED:
                    raise
                await self._must_have_ended(task_id, error)
                return
            if task_id:
                method, params = "SubscribeToTask", {"id": task_id}

    def _is_over(self, what: str, state: str | None) -> bool:
        """Whether a stream has ended for good: only nodes that stop end one before its task has ended."""
        if state not in FINAL and not self.nodes_stop:
            self.records.wrong.append(f"{what}, {state}")
        return state in FINAL or not self.nodes_stop

    async def _ask(self, method: str, params: dict[str, Any]) -> Answer:
        """Ask until there is an answer."""
        self._asked[asyncio.current_task()] = f"{method} {params}"
        tries, lost_at = 0, 0.0
        while True:
            try:
                return await ask(self.url, method, params)
            except Lost as error:
                self._asked[asyncio.current_task()] = f"{method} {params}: {error}"
                tries += 1
                lost_at = self._repeats(tries, error, lost_at)
                await self._pause("asked again")

    def _repeats(self, tries: int, error: Lost, lost_before: float) -> float:
        """Count what must be repeated; `lost_before` is when it was lost the last time. Returns when that was now."""
        self.retries[tries] += 1
        self.reasons[str(error)[:120]] += 1
        now = time.monotonic()
        if tries > 1:
            self.lost_again.append((lost_before, now))
        return now

    async def _pause(self, why: str) -> None:
        self.counted[why] += 1
        await asyncio.sleep(self.random.uniform(0.05, 0.5))

    async def _get(self, task_id: str) -> Answer:
        return await self._ask("GetTask", {"id": task_id})

    def _saw(self, answer: Answer) -> str:
        return self.records.saw(answer.result, answer.asked_at)

    async def _must_have_ended(self, task_id: str, refusal: Refused) -> None:
        state = self._saw(await self._get(task_id))
        if state not in FINAL:
            self.records.wrong.append(f"task {task_id} was taken for ended ({refusal}) and is {state}")

    def _accepted(self, send: Send, answer: Answer) -> dict[str, Any] | None:
        task = answer.result.get("task")
        if task is None:
            self.records.wrong.append(f"{send.skill} {send.nonce} was answered with {answer.result}")
            return None
        self.records.accepted(send.nonce, task["id"])
        if self.records.saw(task, answer.asked_at) == WAITING:
            self._parked.append((send.nonce, task["id"]))
        return task

    def _new(self, skill: str, **more: Any) -> tuple[Send, dict[str, Any]]:
        """A message that nobody has sent yet."""
        send = self.note_message(skill)
        milliseconds = self.random.choice((0, 40, 200, self.longest_ms // 2, self.longest_ms))
        message = self._message([{"data": {"nonce": send.nonce, "ms": milliseconds}}], **more)
        message |= {"metadata": {"skillId": skill}, "messageId": send.message_id}
        return send, message

    def note_message(self, skill: str) -> Send:
        """Note that somebody is about to send a message, under an id of its own."""
        nonce = f"{self.records.prefix}{len(self.records.sends) + 1}"
        send = self.records.sends[nonce] = Send(nonce, skill, self._new_id())
        return send

    def _new_id(self) -> str:
        return str(UUID(int=self.random.getrandbits(128), version=4))

    def _message(self, parts: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        return {"messageId": self._new_id(), "role": "ROLE_USER", "parts": parts, **more}


def _immediately(message: dict[str, Any]) -> dict[str, Any]:
    return {"message": message, "configuration": {"returnImmediately": True}}
