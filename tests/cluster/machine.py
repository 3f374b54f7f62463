"""A cluster in virtual time that anything can happen to, and what has to hold whatever happens.

Everything is drawn from one seed: the steps of callers, the faults, and the delays of the network.
"""

from __future__ import annotations

import json
import logging
import random as global_random
import secrets
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import Any

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
from cluster.link import CALM, Network, Weather
from cluster.node import AGENTS, SimulatedNode
from cluster.real_database import RealBackend
from cluster.scripted_agent import random_script
from cluster.simulated_database import SimulatedDatabase
from cluster.switchboard import Switchboard
from cluster.world import START, World

from dragoman.model import ids
from dragoman.model.error import A2AError, ServerError
from dragoman.model.json import decode_task
from dragoman.model.message import Message
from dragoman.model.record import fold
from dragoman.model.state import State
from dragoman.model.task import Task

MOST_NODES = 5
# How many runs a node may have at a time: any number, a few, or none, when it only accepts messages.
RUN_LIMITS = (None, None, None, 2, 0)
# Virtual seconds in which everything has to come to an end once the faults are over: the longest script takes less.
HEAL_SECONDS = 240.0
STORMS = (
    Weather(delay=0.05),
    Weather(delay=0.5),
    Weather(refuse=0.1, cut=0.05),
    Weather(swallow=0.15),
    Weather(zombie=0.15),
    Weather(delay=0.1, refuse=0.05, cut=0.05, swallow=0.05, zombie=0.05),
)
# Reasons that a task must never fail for: its store hides all of these faults.
FORBIDDEN_REASONS = ("could not take writes", "has lost events", "Internal error", "internal error")


class Cluster:
    """Two to five nodes on one database, their callers, and the invariants.

    `storm` is how much more frequent faults are than usual, `faults` are those that may happen. `step` does one thing
    at random. `finish` ends all faults, waits until everything is done, and checks all that must hold at the end.
    """

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
        self._logs = _ErrorLog()
        for number in range(nodes):
            self.start_node(None if number == 0 or not storm else random.choice(RUN_LIMITS))
        self.run(2.0)

    # -- time and nodes ------------------------------------------------------------------------------------------------

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        """Let time pass, and look for violations."""
        with self._logs.watch(), _ids_of(self.random):
            done = self.world.run(seconds, until)
        self.check()
        return done

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

    def start_node(self, runs_limit: int | None = None) -> None:
        """Start one more node."""
        self._names += 1
        name = f"n{self._names}"
        parts = (self.world, self.network, self.board, self.effects, self.random, name)
        with self._logs.watch(), _ids_of(self.random):
            self.nodes.append(SimulatedNode(*parts, runs_limit))

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
        with _ids_of(self.random):
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
        sent = SentMessage(agent, message, wait=self.random.random() < 0.4, new_task_id=new_task_id)
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
            if row is None or not row.state.final or reader.last not in (0, row.generation):
                self.report(f"a stream of {reader.task_id} after {reader.last} was refused: {error!r}", reader.task_id)
            reader.finished = True

    # -- faults --------------------------------------------------------------------------------------------------------

    def weather(self) -> None:
        """The network of a node gets worse, or better."""
        node = self.random.choice(self.living) if self.living else None
        if node is not None:
            weather = self.random.choice((CALM, CALM, *STORMS))
            self.trace.append(f"{self._time()} {node.name} {weather}")
            for link in node.links:
                link.weather = weather

    def lose_wake_ups(self) -> None:
        """Notifications are late or lost for a while, or connections for them are cut."""
        self.board.loss = self.random.choice((0.0, 0.0, 0.1, 0.5, 1.0))
        self.board.delay = self.random.choice((0.004, 0.004, 0.1, 3.0))
        if self.random.random() < 0.3:
            self.board.cut()

    def kill(self) -> None:
        """Kill a node; another one starts, sooner or later."""
        if len(self.living) > 1 or self.random.random() < 0.3:
            node = self.random.choice(self.living) if self.living else None
            if node is not None:
                self.trace.append(f"{self._time()} {node.name} is killed")
                node.kill()
                self.run(0)
        if self.random.random() < 0.7:
            self.start()

    def stop(self) -> None:
        """Stop a node properly, and start another."""
        node = self._any_node()
        if node is not None:
            self.trace.append(f"{self._time()} {node.name} stops")
            node.stop()
        self.start()

    def start(self) -> None:
        """Start a node, unless there are many."""
        if len(self.living) < MOST_NODES:
            self.start_node(self.random.choice(RUN_LIMITS))

    def pause(self) -> None:
        """Stop a node for a while, mostly for longer than its lease; or only its event loop."""
        node = self._any_node()
        if node is not None:
            seconds = self.random.choice((0.5, 5.0, 7.0, 14.0, 30.0))
            freeze = node.freeze if self.random.random() < 0.7 else node.hang
            if self.random.random() < 0.5:  # in the middle of something
                self.tell(node, "once once chunk once slow", agent=self._any_agent())
                self.run(self.random.random() * 0.015)
            self.trace.append(f"{self._time()} {node.name} {freeze.__name__} for {seconds}")
            freeze(stopped=True)
            self.world.after(seconds, lambda: freeze(stopped=False))

    def cut_off(self) -> None:
        """Cut a node off from the database for a while: all of it, or only the connection of its lease."""
        node = self._any_node()
        if node is not None:
            seconds = self.random.choice((0.0, 0.5, 5.0, 10.0, 20.0))
            links = node.links if self.random.random() < 0.6 else (self.random.choice(node.links),)
            self.trace.append(f"{self._time()} {node.name} loses {len(links)} links for {seconds}")
            for link in links:
                link.break_network(seconds)
            if node.bus_link in links:
                self.board.cut(node.bus_link)

    def restart_database(self) -> None:
        """Restart the database at once, or after an outage."""
        seconds = self.random.choice((0.0, 0.2, 1.0, 8.0, 30.0))
        self.trace.append(f"{self._time()} the database is away for {seconds}")
        self.network.restart(seconds)
        self.board.cut()

    def pass_time(self) -> None:
        """Let some time pass."""
        self.run(self.random.choice((0.01, 0.1, 1.0, 3.0, 8.0)))

    # -- steps ---------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Do one thing at random."""
        self.do(self.random.choices(self._names_of_steps, self._weights)[0])

    def do(self, name: str) -> None:
        """Do one thing, and let a moment pass."""
        self.steps[name] += 1
        getattr(self, name)()
        self.run(self.random.choice((0.0, 0.002, 0.01, 0.05, 0.3)))

    # -- the end -------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """End all faults, wait until everything is done, and check everything."""
        self.trace.append(f"{self._time()} the faults end")
        self.network.down_until = 0
        self.board.loss, self.board.delay = 0.0, 0.004
        for node in self.living:
            node.freeze(stopped=False)
            for link in node.links:
                link.weather, link.down_until = CALM, 0
        end = self.world.now + HEAL_SECONDS
        while self.world.now < end and not (self.world.now > end - HEAL_SECONDS + 20 and self._is_quiet()):
            if not any(node.runs_limit is None and not node.stopping for node in self.living):
                self.start_node()
            self.run(2.0)
            self.retry_all()
            self.resume()
        self.run(16.0)  # as long as it takes until lost wake-ups are noticed
        _End(self).check()
        self.check()

    def retry_all(self) -> None:
        """Repeat every message that nobody has answered."""
        for sent in list(self.open_messages):
            if sent.in_flight < self.world.now:
                sent.in_flight = self.world.now + 10
                self._post(sent)

    def _is_quiet(self) -> bool:
        rows = self.audit.rows.values()
        return not self.open_messages and all(row.state.final or row.state.waiting for row in rows)

    def close(self) -> None:
        """Leave nothing behind."""
        for node in list(self.living):
            node.kill()
        with self._logs.watch():
            self.world.close()


class _End:
    """The checks of a cluster in which everything is done."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._report = cluster.report
        self._audit = cluster.audit

    def check(self) -> None:
        """Check everything."""
        cluster = self._cluster
        histories: dict[str, list[str]] = {}
        for number, row in self._audit.rows.items():
            self._check_journal(number, row.id)
            histories[row.id] = [message.message_id for message in self._read(row.scope.agent, row.id)]
        for sent in cluster.messages:
            self._check_message(sent, histories)
        for reader in cluster.readers:
            self._check_reader(reader)
        for agent in AGENTS:
            drafts = self._query("drafts", agent)
            if drafts:
                self._report(f"drafts are left: {[stored.row.id for stored in drafts]}")

    def _query(self, method: str, *args: Any) -> Any:
        results: list[Any] = []
        network = self._cluster.network
        network.backend.execute(
            getattr(self._audit, method)(*args), lambda result, error: results.append((result, error))
        )
        self._cluster.run(0.0, lambda: bool(results))
        result, error = results[0]
        if error is not None:
            raise error
        return result

    def _check_journal(self, number: int, task_id: str) -> None:
        stored = self._query("task", task_id)
        journal = self._audit.journals[number]
        if stored is None:
            self._report(f"task {task_id} is gone")
            return
        records = self._query("records", number, 0, 100_000)
        if [record.generation for record in records] != list(range(1, stored.row.generation + 1)):
            self._report(f"the journal of {task_id} has gaps: {[record.generation for record in records]}")
        if {record.generation: record.body for record in records} != journal:
            self._report(f"the journal of {task_id} is not what was committed")
        events = [record.event for record in records]
        states = [event.status.state for event in events if hasattr(event, "status")]
        if any(state.final for state in states[:-1]):
            self._report(f"{task_id} went on after its end: {states}")
        if states[-1] is not stored.row.state or states[-1] in (State.SUBMITTED, State.WORKING):
            self._report(f"{task_id} is left {stored.row.state}, its journal says {states[-1]}", task_id)
        owner = self._query("owners", 0, [number])[number]
        if owner.owner is not None:
            self._report(f"{task_id} is {stored.row.state} and owned by {self._audit.nodes.get(owner.owner)}", task_id)
        task = fold(events[0], events[1:])
        if stored.snapshot is not None and decode_task(stored.snapshot).artifacts != task.artifacts:
            self._report(f"the snapshot of {task_id} is not what its journal says", task_id)
        text = "" if task.status.message is None else task.status.message.text
        if states[-1] is State.FAILED and any(reason in text for reason in FORBIDDEN_REASONS):
            self._report(f"{task_id} has failed: {text}", task_id)
        if task_id in self._cluster.canceled and states[-1] is not State.CANCELED:
            self._report(f"{task_id} was canceled and is {states[-1]}", task_id)

    def _read(self, agent: str, task_id: str) -> list[Message]:
        """The history of a task as a node reads it."""
        cluster = self._cluster
        results: list[Any] = []
        node = cluster._any_node()
        if node is None:
            self._report("no node is ready")
            return []
        work = node.services[agent].get(ANYBODY, get_request(task_id))
        cluster._call(node, work, lambda result, error: results.append(result if error is None else error))
        cluster.run(30.0, lambda: bool(results))
        if not results or isinstance(results[0], Exception):
            self._report(f"{task_id} cannot be read: {results}")
            return []
        return list(results[0].result.history)

    def _check_message(self, sent: SentMessage, histories: dict[str, list[str]]) -> None:
        found = [task_id for task_id, history in histories.items() for message in history if message == sent.id]
        if sent.refusal is not None and sent.task_id is None:
            if found:
                self._report(
                    f"{sent!r} was refused with {sent.refusal!r}, and is in {found}",
                    sent.task_id or next(iter(found), None),
                )
        elif sent.task_id is None:
            self._report(f"{sent!r} was never answered; it is in {found}", sent.request.message.task_id)
        elif sent.task_id == "":
            if found:
                self._report(
                    f"{sent!r} was answered with a reply, and is in {found}", sent.task_id or next(iter(found), None)
                )
        elif found != [sent.task_id]:
            self._report(
                f"{sent!r} was accepted for {sent.task_id}, and is in {found}", sent.task_id or next(iter(found), None)
            )

    def _check_reader(self, reader: Reader) -> None:
        number = self._audit.numbers_by_id.get(reader.task_id or "")
        if number is None:
            self._report(f"a reader has read {reader.task_id}, which was never committed")
            return
        row, journal = self._audit.rows[number], self._audit.journals[number]
        for generation, body in reader.bodies.items():
            if journal.get(generation) != body:
                self._report(f"a reader of {reader.task_id} has got another event {generation}")
        done = reader.finished or not row.state.final
        where = f"{reader.node.name}, which is {'open' if reader.in_flight else 'broken'}"
        if not done or (
            row.state.final and not reader.ends_on_input_required and reader.last not in (0, row.generation)
        ):
            self._report(
                f"a stream of {reader.task_id} at {where} has ended at {reader.last} of {row.generation}",
                reader.task_id,
            )
        elif not reader.finished and reader.last != row.generation:
            self._report(
                f"a stream of {reader.task_id} at {where} is at {reader.last} of {row.generation}", reader.task_id
            )


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
    "cancel": 5,
    "get": 5,
    "list": 2,
    "subscribe": 6,
    "resume": 3,
    "pass_time": 5,
}
FAULTS: dict[str, float] = {
    "weather": 3,
    "lose_wake_ups": 1,
    "kill": 1,
    "stop": 0.5,
    "start": 0.5,
    "pause": 1,
    "cut_off": 1,
    "restart_database": 0.5,
}


class _ErrorLog(logging.Handler):
    """Collects what nodes log as errors: they must have no reason to."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.errors: list[str] = []
        self._logger = logging.getLogger("dragoman")

    def emit(self, record: logging.LogRecord) -> None:
        """Collect one."""
        error = f" {record.exc_info[1]!r}" if record.exc_info else ""
        self.errors.append(f"{record.getMessage()}{error}")

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Collect while this is open."""
        self._logger.addHandler(self)
        try:
            yield
        finally:
            self._logger.removeHandler(self)


@contextmanager
def _ids_of(random: Random) -> Iterator[None]:
    """Draw from the seed whatever the code under test draws."""
    before, randbits = ids._generate_ids, secrets.randbits
    ids._pool.clear()

    def generate() -> list[str]:
        block = random.randbytes(16 * 8).hex()
        return [ids._uuid(block[start : start + 32]) for start in range(0, len(block), 32)]

    ids._generate_ids, secrets.randbits = generate, random.getrandbits
    try:
        yield
    finally:
        ids._generate_ids, secrets.randbits = before, randbits
        ids._pool.clear()


def main(seed: int, steps: int, nodes: int) -> None:
    """Run one cluster by hand."""
    cluster = Cluster(seed, nodes=nodes)
    try:
        for _ in range(steps):
            cluster.step()
        cluster.finish()
    finally:
        cluster.close()
    print(json.dumps(cluster.steps))
