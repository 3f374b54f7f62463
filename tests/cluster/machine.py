"""A cluster in virtual time that anything can happen to, and what has to hold whatever happens.

Everything is drawn from one seed: the steps of callers, the faults, and the delays of the network.
"""

from __future__ import annotations

import random as global_random
from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from random import Random
from typing import Any, Self

from cluster.audit import AuditedDatabase, Effects
from cluster.callers import (
    ANYBODY,
    Reader,
    SentMessage,
    cancel_request,
    get_request,
    list_request,
    new_message,
    subscribe_request,
)
from cluster.fault_steps import FAULTS, RUN_LIMITS, FaultSteps
from cluster.final_checks import FinalChecks
from cluster.hooks import Receiver, webhook
from cluster.link import CALM, Network
from cluster.node import AGENTS, SimulatedNode
from cluster.real_database import RealBackend
from cluster.scripted_agent import random_script
from cluster.seeded import ErrorLog, ids_of
from cluster.simulated_database import SimulatedDatabase
from cluster.switchboard import Switchboard
from cluster.world import START, World

from dragoman.model import ids
from dragoman.model.error import A2AError, InvalidParams, ServerError
from dragoman.model.message import Message
from dragoman.model.state import State
from dragoman.model.task import Task

# Virtual seconds in which everything has to come to an end once the faults are over: the longest script takes less.
HEAL_SECONDS = 240.0
# No script has more pauses.
MOST_PAUSES = 8


class Cluster(FaultSteps):
    """Two to five nodes on one database, their callers, and the invariants.

    `storm` is how much more frequent faults are than usual, `faults` are those that may happen. `step` does one thing
    at random. `finish` ends all faults, waits until everything is done, and checks all that must hold at the end.
    """

    # Reasons that a task must never fail for: its store hides all of these faults.
    forbidden_reasons: tuple[str, ...] = (
        "could not take writes",
        "has lost events",
        "Internal error",
        "internal error",
    )

    def __init__(
        self,
        seed: int,
        *,
        nodes: int = 3,
        storm: float = 1,
        faults: Mapping[str, float] | None = None,
        database: Any = None,
        backend: RealBackend | None = None,
    ) -> None:
        self.seed = seed
        faults = FAULTS if faults is None else faults
        self._names_of_steps = [*CALLS, *faults]
        self._weights = [*CALLS.values(), *(weight * storm for weight in faults.values())]
        self.random = random = Random(seed)
        global_random.seed(seed)  # jitter
        self.world = World()
        database = database or SimulatedDatabase(lambda: self.world.now)
        self.audit = AuditedDatabase(database, lambda: self.world.now, ordered=backend is None)
        self.network = Network(self.world, self.audit, random, backend)
        if backend is not None:
            self.network.grid = 0.002
            backend.attach(self.world)
        self.board = Switchboard(self.world, random)
        self.effects = Effects(self.audit)
        self.receiver = Receiver(self.world, random)
        self.nodes: list[SimulatedNode] = []
        self.messages: list[SentMessage] = []
        self.open_messages: dict[SentMessage, None] = {}
        self.readers: dict[Reader, None] = {}
        self.task_ids: dict[str, list[str]] = {agent: [] for agent in AGENTS}
        self.contexts: dict[str, list[str]] = {agent: [] for agent in AGENTS}
        self.seen: dict[str, int] = {}
        self.canceled: set[str] = set()
        self.steps: Counter[str] = Counter()
        self.trace: deque[str] = deque(maxlen=60)
        self._names = 0
        self._logs = ErrorLog()
        for number in range(nodes):
            self.start_node(None if number == 0 or not storm else random.choice(RUN_LIMITS))
        self.run(2.0)

    # -- time and nodes ------------------------------------------------------------------------------------------------

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        """Let time pass, and look for violations."""
        with self.seeded():
            done = self.world.run(seconds, until)
        self.check()
        return done

    @contextmanager
    def seeded(self) -> Generator[None]:
        """Draw from the seed whatever the code under test draws, and collect the errors that it logs."""
        with self._logs.watch(), ids_of(self.random):
            yield

    def _time(self) -> str:
        return f"{self.world.now - START:.3f}"

    def check(self) -> None:
        """Raise AssertionError when something has happened that must not."""
        problems = self.audit.violations + self.world.errors + self._logs.errors
        if problems:
            lines = "\n".join([*self.trace, *problems[:10]])
            raise AssertionError(f"seed {self.seed}, after {self.steps.total()} steps:\n{lines}")

    def report(self, text: str, task_id: str | None = None) -> None:
        """Note that an invariant does not hold."""
        self.audit.report(text, self.audit.numbers_by_id.get(task_id or ""))

    def start_node(self, runs_limit: int | None = None, name: str | None = None) -> None:
        """Start one more node, or one that was stopped again."""
        self._names += name is None
        name = name or f"n{self._names}"
        parts = (self.world, self.network, self.board, self.effects, self.random, name)
        with self.seeded():
            self.nodes.append(SimulatedNode(*parts, runs_limit, self.receiver))

    @property
    def living(self) -> list[SimulatedNode]:
        """The nodes that were not killed."""
        self.nodes = [node for node in self.nodes if node.alive]
        return self.nodes

    def _any_node(self) -> SimulatedNode | None:
        ready = [node for node in self.living if node.ready]
        return self.random.choice(ready) if ready else None

    def _call(self, node: SimulatedNode, work: Any, done: Callable[[Any, BaseException | None], None]) -> None:
        """Start a request on a node. Nothing is called back when the node is killed."""

        def on_done(task: Any) -> None:
            error = None if task.cancelled() else task.exception()
            if task.cancelled():
                error = ServerError("canceled")
            done(None if error else task.result(), error)
            if error is not None and not isinstance(error, A2AError):
                self.report(f"{node.name} answered with {error!r}")

        node.loop.spawn(work).add_done_callback(on_done)

    # -- messages ------------------------------------------------------------------------------------------------------

    def _new_id(self) -> str:
        with ids_of(self.random):
            return ids.new_id()

    def _post(self, sent: SentMessage, *, stream: bool = False, node: SimulatedNode | None = None) -> None:
        node = node or self._any_node()
        if node is None:
            return
        sent.times += 1
        self.trace.append(f"{self._time()} {node.name} {'stream' if stream else 'send'} {sent!r}")
        if stream:
            reader = Reader(sent.agent, None, self.report)
            reader.ends_on_input_required = True
            self._call(node, self._follow_sent(node, sent, reader), lambda _, error: self._on_sent(sent, None, error))
            return
        work = node.services[sent.agent].send(ANYBODY, sent.request)
        self._call(node, work, lambda result, error: self._on_sent(sent, result and result.result, error))

    async def _follow_sent(self, node: SimulatedNode, sent: SentMessage, reader: Reader) -> None:
        stream = await node.services[sent.agent].stream(ANYBODY, sent.request)
        reader.node, reader.in_flight = node, True
        try:
            async for batch in stream.batches:
                for record in batch.records:
                    event = record.event
                    if reader.task_id is None:
                        self._accepted(sent, event.id if isinstance(event, Task) else "")
                        if isinstance(event, Task):
                            self.readers[reader] = None
                    self._receive(reader, record)
        finally:
            reader.in_flight = False

    def _on_sent(self, sent: SentMessage, result: Any, error: BaseException | None) -> None:
        if error is not None:
            if not isinstance(error, ServerError) and isinstance(error, A2AError):
                self._refused(sent, error)
            return
        if result is None:
            return
        if isinstance(result, Message):
            self._accepted(sent, "")
            return
        self._accepted(sent, result.id)
        self._saw(result.id, result.generation or 0)
        if sent.id not in [message.message_id for message in result.history]:
            self.report(f"{sent!r} was accepted, but is not in the history of {result.id}", result.id)

    def _accepted(self, sent: SentMessage, task_id: str) -> None:
        if sent.task_id is not None and sent.task_id != task_id:
            self.report(f"{sent!r} was accepted for {sent.task_id!r} and {task_id!r}", task_id)
        sent.task_id = task_id
        self.open_messages.pop(sent, None)
        if task_id and task_id not in self.seen:
            self.seen[task_id] = 0
            self.task_ids[sent.agent].append(task_id)

    def _refused(self, sent: SentMessage, error: Exception) -> None:
        sent.refusal = sent.refusal or error
        self.open_messages.pop(sent, None)

    def _saw(self, task_id: str, generation: int) -> None:
        self.seen[task_id] = max(self.seen.get(task_id, 0), generation)

    def _write(
        self,
        agent: str,
        message: Message,
        *,
        new_task_id: str | None = None,
        stream: bool = False,
        node: SimulatedNode | None = None,
    ) -> SentMessage:
        wait, hook = self.random.random() < 0.4, webhook() if self.random.random() < 0.2 else None
        sent = SentMessage(agent, message, wait=wait, new_task_id=new_task_id, webhook=hook)
        self.messages.append(sent)
        self.open_messages[sent] = None
        self._post(sent, stream=stream, node=node)
        return sent

    def tell(self, node: SimulatedNode, text: str, task_id: str | None = None, **options: Any) -> SentMessage:
        """Send a message to a node."""
        agent, context_id = options.pop("agent", "serial"), options.pop("context_id", None)
        return self._write(agent, new_message(self._new_id(), text, task_id, context_id), node=node, **options)

    def repeat_at(self, sent: SentMessage, node: SimulatedNode) -> None:
        """Send a message once more, to a node."""
        self._post(sent, node=node)

    def _any_agent(self) -> str:
        return self.random.choices(list(AGENTS), (5, 3, 1, 2))[0]

    def _any_task(self, agent: str) -> str | None:
        """A task, a recent one most of the time."""
        tasks = self.task_ids[agent]
        if not tasks:
            return None
        return self.random.choice(tasks[-8:] if self.random.random() < 0.9 else tasks)

    def send(self) -> None:
        """A message that creates a task in a new context."""
        self._write(self._any_agent(), new_message(self._new_id(), random_script(self.random)))

    def stream(self) -> None:
        """The same, and its events are followed."""
        self._write(self._any_agent(), new_message(self._new_id(), random_script(self.random)), stream=True)

    def join(self) -> None:
        """A message that creates a task in a context which may have others."""
        agent = self._any_agent()
        contexts = self.contexts[agent]
        if len(contexts) < 3 or self.random.random() < 0.05:
            contexts.append(self._new_id())
            del contexts[:-4]
        context = self.random.choice(contexts)
        message = new_message(self._new_id(), random_script(self.random, 3), context_id=context)
        self._write(agent, message, stream=self.random.random() < 0.3)

    def send_named(self) -> None:
        """A message whose caller chooses the id of the task, to two nodes at once now and then."""
        sent = self._write(
            self._any_agent(), new_message(self._new_id(), random_script(self.random)), new_task_id=self._new_id()
        )
        if self.random.random() < 0.5:
            self._post(sent)

    def repeat(self) -> None:
        """A message once more, to any node: one that was answered, or one that was not."""
        recent = self.messages[-20:]
        if recent:
            self._post(self.random.choice(recent), stream=self.random.random() < 0.2)

    def retry(self) -> None:
        """The messages that nobody has answered for so long, once more."""
        for sent in list(self.open_messages)[-5:]:
            self._post(sent)

    def answer(self) -> None:
        """A message for a task, which may be waiting or at work; two at once now and then."""
        agent = self._any_agent()
        waiting = [task_id for task_id in self.task_ids[agent][-20:] if self._state(task_id) in _WAITING]
        task_id = self.random.choice(waiting) if waiting else self._any_task(agent)
        if task_id is not None:
            for _ in range(self.random.choice((1, 1, 1, 2))):
                self._write(agent, new_message(self._new_id(), "yes", task_id), stream=self.random.random() < 0.2)

    def log_in(self) -> None:
        """A login that the server's own code reports; to two nodes at once now and then."""
        agent = self._any_agent()
        waiting = [each for each in self.task_ids[agent][-20:] if self._state(each) is State.AUTH_REQUIRED]
        for _ in range(self.random.choice((1, 1, 2)) if waiting else 0):
            node, handles = self._any_node(), self.effects.handles.get(waiting[-1])
            if node is not None and handles:
                self._call(node, node.services[agent].resume(handles[-1], {"name": "Ann"}), lambda *_: None)

    def words(self) -> None:
        """A message for a task that is at work, most of the time."""
        agent = self._any_agent()
        working = [task_id for task_id in self.task_ids[agent][-20:] if self._state(task_id) is State.WORKING]
        task_id = self.random.choice(working) if working else self._any_task(agent)
        if task_id is not None:
            self._write(agent, new_message(self._new_id(), "words", task_id))

    def _state(self, task_id: str) -> State | None:
        row = self.audit.rows.get(self.audit.numbers_by_id.get(task_id, 0))
        return None if row is None else row.state

    # -- other requests ------------------------------------------------------------------------------------------------

    def cancel(self) -> None:
        """Cancel a task, at any node."""
        agent = self._any_agent()
        node, task_id = self._any_node(), self._any_task(agent)
        if node is not None and task_id is not None:
            self.cancel_at(node, task_id, agent)

    def cancel_at(self, node: SimulatedNode, task_id: str, agent: str = "serial") -> None:
        """Cancel a task at a node."""

        def done(result: Any, error: BaseException | None) -> None:
            if error is None and result.result.status.state is not State.CANCELED:
                self.report(f"{task_id} was canceled and is {result.result.status.state}", task_id)
            elif error is None:
                self.canceled.add(task_id)

        self.trace.append(f"{self._time()} {node.name} cancel {task_id[:8]}")
        self._call(node, node.services[agent].cancel(ANYBODY, cancel_request(task_id)), done)

    def get(self) -> None:
        """Read a task: it shows at least what any caller has seen before."""
        agent = self._any_agent()
        node, task_id = self._any_node(), self._any_task(agent)
        if node is None or task_id is None:
            return
        least = self.seen.get(task_id, 0)

        def done(result: Any, error: BaseException | None) -> None:
            if error is None:
                if (result.result.generation or 0) < least:
                    self.report(
                        f"{node.name} read {task_id} at {result.result.generation}, after {least} was seen", task_id
                    )
                self._saw(task_id, result.result.generation or 0)
            elif not isinstance(error, ServerError):
                self.report(f"{node.name} cannot read {task_id}: {error!r}", task_id)

        wait = least if self.random.random() < 0.2 else None
        self._call(node, node.services[agent].get(ANYBODY, get_request(task_id, wait)), done)

    def list(self) -> None:
        """Read a page of tasks."""
        agent, node = self._any_agent(), self._any_node()
        if node is None:
            return

        def done(result: Any, error: BaseException | None) -> None:
            if error is None:
                for task in result.tasks:
                    self._saw(task.id, task.generation or 0)
            elif not isinstance(error, ServerError):
                self.report(f"{node.name} cannot list: {error!r}")

        self._call(node, node.services[agent].list(ANYBODY, list_request()), done)

    def subscribe(self) -> None:
        """Follow a task from now on, at any node."""
        agent = self._any_agent()
        task_id = self._any_task(agent)
        if task_id is not None:
            reader = Reader(agent, task_id, self.report)
            self.readers[reader] = None
            self._resume(reader)

    def resume(self) -> None:
        """Resume the streams that have broken, at any node."""
        for reader in self.readers:
            if not reader.finished and not (reader.in_flight and reader.node.alive):
                self._resume(reader)

    def _resume(self, reader: Reader) -> None:
        node = self._any_node()
        if node is not None:
            reader.in_flight = True
            reader.node = node
            self._call(node, self._follow(node, reader), lambda _, error: self._on_stream(reader, error))

    async def _follow(self, node: SimulatedNode, reader: Reader) -> None:
        after = reader.last or None
        request = subscribe_request(reader.task_id or "")
        stream = await node.services[reader.agent].subscribe(ANYBODY, request, after)
        async for batch in stream.batches:
            for record in batch.records:
                self._receive(reader, record)

    def _receive(self, reader: Reader, record: Any) -> None:
        reader.receive(record)
        if reader.task_id:
            self._saw(reader.task_id, record.generation)

    def _on_stream(self, reader: Reader, error: BaseException | None) -> None:
        reader.in_flight = False
        if error is not None and not isinstance(error, ServerError):
            # The task has ended, and there is nothing left.
            number = self.audit.numbers_by_id.get(reader.task_id or "", 0)
            row = self.audit.rows.get(number)
            if number in self.audit.uncertain:
                pass
            elif row is None or not row.state.final or reader.last not in (0, row.generation):
                self.report(f"a stream of {reader.task_id} after {reader.last} was refused: {error!r}", reader.task_id)
            reader.finished = True

    # -- steps ---------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Do one thing at random."""
        self.do(self.random.choices(self._names_of_steps, self._weights)[0])

    def do(self, name: str) -> None:
        """Do one thing, and let a moment pass."""
        self.steps[name] += 1
        getattr(self, name)()
        self.run(self.random.choice((0.0, 0.002, 0.01, 0.05, 0.3)))

    def play(self, steps: int) -> Self:
        """A whole history: so many steps at random, and its end, at which everything is checked. Closes the cluster."""
        try:
            for _ in range(steps):
                self.step()
            self.finish()
        finally:
            self.close()
        return self

    # -- the end -------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """End all faults, wait until everything is done, and check everything."""
        self.heal()
        end = self.world.now + HEAL_SECONDS
        while self.world.now < end and not (self.world.now > end - HEAL_SECONDS + 20 and self._is_quiet()):
            if not any(node.runs_limit is None and not node.stopping for node in self.living):
                self.start_node()
            self.run(2.0)
            self.retry_all()
            self.resume()
            FinalChecks(self).resolve()
        self.run(16.0)  # as long as it takes until lost wake-ups are noticed
        self.answer_all()
        self.run(2.0)
        self.run(60.0, self._is_quiet)
        FinalChecks(self).check()
        self.check()

    def heal(self) -> None:
        """End all faults."""
        self.trace.append(f"{self._time()} the faults end")
        self.network.down_until = 0
        self.board.loss, self.board.delay = 0.0, 0.004
        for node in self.living:
            node.freeze(stopped=False)
            for link in node.links:
                link.weather, link.down_until = CALM, 0

    def answer_all(self) -> None:
        """Answer every question and report every login, until no task waits: each must be possible."""
        for _ in range(MOST_PAUSES):
            waiting = [row for row in self.audit.rows.values() if row.state.waiting]
            if not waiting:
                return
            asked = {row.id: row.generation for row in waiting}
            for row in waiting:
                if row.state is State.INPUT_REQUIRED:
                    self._write(row.scope.agent, new_message(self._new_id(), "yes", row.id))
                else:
                    self._log_in(row.id, row.scope.agent)
            self.run(40.0, lambda asked=asked: self._is_quiet() and not self._waiting_since(asked))
            for task_id in self._waiting_since(asked):
                self.report(f"the question of {task_id} cannot be answered", task_id)
            self.check()
        self.report("tasks ask and ask")

    def _waiting_since(self, asked: Mapping[str, int]) -> list[str]:
        """The tasks that are still where they were when they were answered."""
        return [row.id for row in self.audit.rows.values() if row.state.waiting and asked.get(row.id) == row.generation]

    def _log_in(self, task_id: str, agent: str) -> None:
        """Report a login to any node, which must take it: nobody else does."""
        node = self._any_node()
        if node is not None:
            self._call(node, self._resume_login(node, task_id, agent), lambda *_: None)

    async def _resume_login(self, node: SimulatedNode, task_id: str, agent: str) -> None:
        errors: list[A2AError] = []
        for handle in reversed(self.effects.handles.get(task_id, ())):
            try:
                await node.services[agent].resume(handle, {"name": "Ann"})
            except InvalidParams as error:  # that of a pause that was refused
                errors.append(error)
            else:
                return
        self.report(f"no handle of {task_id} continues it: {errors}", task_id)

    def retry_all(self) -> None:
        """Repeat every message that nobody has answered."""
        for sent in list(self.open_messages):
            if sent.in_flight < self.world.now:
                sent.in_flight = self.world.now + 10
                self._post(sent)

    def _is_quiet(self) -> bool:
        rows = self.audit.rows.values()
        is_delivered = not any(node.delivery.owed_count for node in self.living)
        return not self.open_messages and is_delivered and all(row.state.final or row.state.waiting for row in rows)

    def close(self) -> None:
        """Leave nothing behind."""
        for node in list(self.living):
            node.kill()
        with self._logs.watch():
            self.world.close()


_WAITING = (State.INPUT_REQUIRED, State.AUTH_REQUIRED)
CALLS: dict[str, float] = {
    "send": 16,
    "stream": 8,
    "join": 16,
    "send_named": 3,
    "repeat": 8,
    "retry": 4,
    "answer": 14,
    "words": 8,
    "log_in": 5,
    "cancel": 5,
    "get": 5,
    "list": 2,
    "subscribe": 6,
    "resume": 3,
    "pass_time": 5,
}
