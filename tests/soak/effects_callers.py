"""Callers of the agent with effects, who tell the model what they see: some give up at the first broken connection,
some use Dragoman's client, which tries again.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from random import Random
from typing import Any
from uuid import UUID

from dragoman import Client, State
from dragoman.model.error import A2AError, CannotConnect
from dragoman.model.json import encode

SKILLS = ("work", "work", "work_in_thread", "talk", "plan", "pay", "pay", "again")
FINAL = ("TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED")
WAITING = "TASK_STATE_INPUT_REQUIRED"
SECONDS = 120


class Callers:
    """What both kinds have: chance, a model, and the tasks that somebody may still answer."""

    def __init__(self, model: Any, rules: Any, url: str, hook: str, random: Random) -> None:
        self.model = model
        self.rules = rules
        self.url = url
        self.hook = hook
        self.random = random
        self.parked: deque[tuple[str, str]] = deque()
        self.counted: Counter[str] = Counter()

    def new(self, skill: str) -> tuple[Any, dict[str, Any]]:
        """A message that nobody has sent yet, and its arguments."""
        number = len(self.model.sends) + 1
        send = self.rules.Send(f"n{number}", skill, self.uuid(), self.random.random() < 0.4)
        self.model.sent(send)
        return send, {"nonce": send.nonce, "ms": self.random.choice((0, 0, 20, 100, 300))}

    def uuid(self) -> str:
        """An id by which a message is known again."""
        return str(UUID(int=self.random.getrandbits(128), version=4))

    def skill(self) -> str:
        """Any."""
        return self.random.choice(SKILLS)


class PlainCallers(Callers):
    """One request, one connection, and no second try."""

    def __init__(self, load: Any, *args: Any) -> None:
        super().__init__(*args)
        self.load = load
        self.open: list[tuple[Any, dict[str, Any]]] = []  # what was sent since the last kill

    async def until_dead(self, number: int, kill: Callable[[], None], seconds: float) -> None:
        """Let so many callers do one thing after the other, and kill the server after that time."""
        self.open.clear()
        workers = [asyncio.ensure_future(self._work()) for _ in range(number)]
        await asyncio.sleep(seconds)
        await asyncio.to_thread(kill)
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(*workers)

    async def _work(self) -> None:
        try:
            while True:
                await self.random.choice((self._send, self._send, self._stream, self._cancel, self._answer))()
        except (OSError, asyncio.IncompleteReadError):  # the server is dead
            pass

    def _params(self, send: Any, arguments: dict[str, Any], **configuration: Any) -> dict[str, Any]:
        message = {
            "messageId": send.message_id,
            "role": "ROLE_USER",
            "parts": [{"data": arguments}],
            "metadata": {"skillId": send.skill},
        }
        if send.hook:
            configuration["taskPushNotificationConfig"] = {"url": self.hook}
        return {"message": message, "configuration": configuration}

    async def _post(self, send: Any, arguments: dict[str, Any], **configuration: Any) -> dict[str, Any] | None:
        answer, headers = await self.load.ask(self.url, "SendMessage", self._params(send, arguments, **configuration))
        task = answer.get("result", {}).get("task")
        if task is None:
            self.model.wrong.append(f"{send.skill} {send.nonce} was answered with {answer}")
            return None
        again = send.nonce in self.model.acknowledged
        self._record(send.nonce, task)
        if again and headers.get("idempotent-replayed") != "true":
            self.model.wrong.append(f"{send.nonce} was taken twice")
        return task

    def _record(self, nonce: str, task: dict[str, Any]) -> None:
        state = task["status"]["state"]
        self.model.took(nonce, task["id"])
        self.model.saw_state(task["id"], state, self.rules.text_of(task))
        self.counted[state] += 1
        if state == WAITING:
            self.parked.append((nonce, task["id"]))

    async def _send(self) -> None:
        send, arguments = self.new(self.skill())
        self.open.append((send, arguments))
        await self._post(send, arguments, returnImmediately=self.random.random() < 0.3)

    async def _stream(self) -> None:
        send, arguments = self.new(self.skill())
        self.open.append((send, arguments))
        await self._follow(send.nonce, "SendStreamingMessage", self._params(send, arguments))

    async def _follow(self, nonce: str, method: str, params: dict[str, Any], after: int | None = None) -> None:
        task_id = self.model.acknowledged.get(nonce, "")
        async for event in self.load.stream(self.url, method, params, after):
            result = json.loads(event.data)["result"]
            task_id = task_id or result["task"]["id"]
            self.model.took(nonce, task_id)
            self.model.saw_event(task_id, event.id, event.data)
            if self.rules.state_of(event.data) == WAITING:
                self.parked.append((nonce, task_id))
                return

    async def _cancel(self) -> None:
        send, arguments = self.new(self.random.choice(("wait", "wait", "pay", "talk")))
        self.open.append((send, arguments))
        task = await self._post(send, arguments, returnImmediately=True)
        if task is None:
            return
        answer, _ = await self.load.ask(self.url, "CancelTask", {"id": task["id"]})
        if "result" in answer:  # it may have ended before
            self._record(send.nonce, answer["result"])

    async def _answer(self) -> None:
        if not self.parked:
            return await self._send()
        nonce, task_id = self.parked.popleft()
        answer, _ = await self.load.ask(self.url, "GetTask", {"id": task_id})
        if answer["result"]["status"]["state"] != WAITING:  # an answer arrived, and its response was lost
            return self._record(nonce, answer["result"])
        self.model.answered(nonce)
        message = {"messageId": self.uuid(), "taskId": task_id, "role": "ROLE_USER", "parts": [{"text": "yes"}]}
        answer, _ = await self.load.ask(self.url, "SendMessage", {"message": message})
        if "result" in answer:  # two may have answered at once
            self._record(nonce, answer["result"]["task"])
        return None

    async def look_again(self) -> None:
        """After a restart: send some messages again, and go on with some streams; the same tasks must be found."""
        gate = asyncio.Semaphore(8)

        async def again(send: Any, arguments: dict[str, Any]) -> None:
            async with gate:
                task_id = self.model.acknowledged.get(send.nonce)
                seen = self.model.events.get(task_id or "")
                if seen and send.skill == "talk":
                    await self._follow(send.nonce, "SubscribeToTask", {"id": task_id}, max(seen) - 1)
                await self._post(send, arguments, returnImmediately=True)

        chosen = self.random.sample(self.open, min(len(self.open), 12))
        await asyncio.gather(*(again(send, arguments) for send, arguments in chosen))


class PatientCallers(Callers):
    """Dragoman's client, which tries again by itself: a send is over when it is done, whatever happens meanwhile."""

    async def until(self, over: asyncio.Event, number: int) -> None:
        """Let so many callers do one thing after the other until it is over."""
        async with Client(self.url, retries=20) as client:
            await client.card()  # an address that has never answered is not tried again
            await asyncio.gather(*(self._work(client, over) for _ in range(number)))

    async def _work(self, client: Client, over: asyncio.Event) -> None:
        while not over.is_set():
            act = self.random.choice((self._send, self._send, self._stream, self._cancel, self._answer))
            try:
                async with asyncio.timeout(SECONDS):
                    await act(client)
            except CannotConnect:
                self.counted["gave up"] += 1
            except TimeoutError:
                self.model.wrong.append(f"{act.__name__} took longer than {SECONDS} s")
            except A2AError as error:
                self.model.wrong.append(f"{act.__name__} was refused: {error!r}")

    def _message(self, send: Any, arguments: dict[str, Any]) -> dict[str, Any]:
        return {
            "data": arguments,
            "metadata": {"skillId": send.skill},
            "message_id": send.message_id,
            "push": self.hook if send.hook else None,
        }

    def _record(self, nonce: str, task: Any) -> None:
        self.model.took(nonce, task.id)
        text = "".join(artifact.text for artifact in task.artifacts)
        self.model.saw_state(task.id, task.state.value, text)
        self.counted[task.state.value] += 1
        if task.state is State.INPUT_REQUIRED:
            self.parked.append((nonce, task.id))

    async def _send(self, client: Client) -> None:
        send, arguments = self.new(self.skill())
        self._record(send.nonce, await client.send(**self._message(send, arguments)))

    async def _stream(self, client: Client) -> None:
        send, arguments = self.new(self.skill())
        stream = client.stream(**self._message(send, arguments))
        before = 0
        async with aclosing(_events(stream)) as events:
            async for event in events:
                self.model.took(send.nonce, event.task.id)
                if event.id == 0:  # the client has looked at the task itself: there was nothing left to subscribe to
                    continue
                if event.id != before + 1:
                    self.model.wrong.append(f"event {event.id} of {send.nonce} follows {before}")
                before = event.id
                self.model.saw_content(event.task.id, event.id, json.loads(encode(event.raw)))
        self._record(send.nonce, stream.task)

    async def _cancel(self, client: Client) -> None:
        send, arguments = self.new(self.random.choice(("wait", "wait", "pay", "talk")))
        task = await client.send(**self._message(send, arguments), wait=False)
        self._record(send.nonce, task)
        try:
            self._record(send.nonce, await client.cancel_task(task))
        except A2AError:  # it has ended before
            self._record(send.nonce, await client.get_task(task))

    async def _answer(self, client: Client) -> None:
        if not self.parked:
            return await self._send(client)
        nonce, task_id = self.parked.popleft()
        found = await client.get_task(task_id)
        if found.state is State.INPUT_REQUIRED:
            self.model.answered(nonce)
            found = await client.send("yes", task=task_id, message_id=self.uuid())
        return self._record(nonce, found)


async def _events(stream: Any) -> AsyncIterator[Any]:
    async for event in stream:
        yield event
