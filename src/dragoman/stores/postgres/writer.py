"""Group commit on the event loop: while one statement is under way, changes collect for the next."""

from __future__ import annotations

import asyncio
import logging
import secrets
from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

from dragoman.clock import wait
from dragoman.engine.ports.ownership import OwnershipLost
from dragoman.model.error import ServerError, TaskGenerationMismatch
from dragoman.stores.commits import commit_time, record_commits
from dragoman.stores.postgres.batch import WriteQueue
from dragoman.stores.postgres.database import CannotWrite, ConnectionLost, InvalidValue
from dragoman.stores.postgres.lease import DECLARED_DEAD
from dragoman.stores.postgres.retry import NO_ANSWER, ConnectionTimeout, answer_within, unavailable
from dragoman.stores.postgres.verdict import judge
from dragoman.telemetry.metrics.catalog import METRICS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dragoman.clock import Clock
    from dragoman.engine.ports.store import Write
    from dragoman.stores.postgres.batch import WriteBatch
    from dragoman.stores.postgres.database import ChangeOutcome, Database

logger = logging.getLogger("dragoman.store")
T = TypeVar("T")

# How long to wait before a statement is sent again: 50 ms, then twice as long each time.
FIRST_DELAY, LAST_DELAY = 0.05, 1.0
# How long to wait for an answer: twice as long each time.
SILENCE_SECONDS = 10.0
# How long no write must be refused until the next refusal is news.
CALM_MS = 5000
# How long closing waits for a database that does not answer.
CLOSE_SECONDS = 10.0


class _NodeChanged(Exception):
    """The node under which a statement was sent is dead."""


class _Abandoned(Exception):
    """The store was closed, and the database did not answer for long."""


class GroupCommit:
    """Writes all waiting changes with one statement at a time; those of one task keep their order.

    A lost connection is hidden: the statement is sent again until its outcome is certain, for as long as it takes. Only
    when others have declared this node dead, all changes that are not certain count as lost.

    A database that answers and cannot write, because its disk is full, is waited for in the same way by tasks that
    run. New ones and answers are refused, so that their callers know: nothing has begun for them.
    """

    def __init__(self, database: Database, clock: Clock, on_work: Callable[[], None]) -> None:
        self._database = database
        self._clock = clock
        self._on_work = on_work
        self._queue = WriteQueue()
        # No other process uses the same keys.
        self._next_key = count(secrets.randbits(62)).__next__
        self._node: int | None = None
        self._worker: asyncio.Task[None] | None = None
        self._closing = False
        self._abandoned = False
        # When the database said last that it cannot write, until it has taken writes for some time again.
        self._refused_ms: int | None = None
        # What messages are refused with while other changes wait for a database that cannot write.
        self._refusal: ServerError | None = None
        # Done when the worker has to look again at what it waits for; replaced then.
        self._signal: asyncio.Future[None] | None = None

    def open(self, node: int) -> None:
        """Start to write, as this node."""
        self._node, self._closing, self._abandoned = node, False, False
        self._worker = asyncio.get_running_loop().create_task(self._run())

    def put(self, write: Write) -> None:
        """Queue a change. On a closed store, `write.done` is called with a ServerError instead."""
        if self._worker is None or self._closing:
            asyncio.get_running_loop().call_soon(write.done, ServerError("the store is closed"))
            return
        records = write.records
        if records and not (records[-1].generation == write.row.generation == records[0].generation + len(records) - 1):
            error = TaskGenerationMismatch("a record does not follow its task's last one")
            asyncio.get_running_loop().call_soon(write.done, error)
            return
        if self._refusal is not None and _accepts(write):
            asyncio.get_running_loop().call_soon(_report, write, self._refusal)
            return
        write.key = self._next_key()
        self._queue.put(write)
        self._wake()

    def lose_all(self) -> None:
        """Fail all waiting changes with OwnershipLost: this node was declared dead. Nothing is written until `resume`.

        The statement that is under way decides about its own changes, if its answer arrives.
        """
        self._node = None
        self._wake()
        lost = OwnershipLost(DECLARED_DEAD)
        for write in self._queue.remove(lambda _: True):
            asyncio.get_running_loop().call_soon(_report, write, lost)

    def resume(self, node: int) -> None:
        """Write as another node from now on."""
        self._node = node
        self._wake()

    async def close(self) -> None:
        """Finish what is queued. What a silent database has not confirmed after some seconds fails with ServerError."""
        worker, self._closing = self._worker, True
        if worker is None:
            return
        self._wake()
        if not await wait(self._clock, worker, CLOSE_SECONDS):
            self._abandoned = True
            self._wake()
            if not await wait(self._clock, worker, LAST_DELAY):  # it is in the middle of a statement
                worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        self._worker = None
        error = ServerError(NO_ANSWER)
        for write in self._queue.remove(lambda _: True):
            _report(write, error)

    # -- the worker ------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        if self._signal is not None and not self._signal.done():
            self._signal.set_result(None)

    def _next_signal(self) -> asyncio.Future[None]:
        self._signal = asyncio.get_running_loop().create_future()
        return self._signal

    async def _run(self) -> None:
        while not self._abandoned:
            if self._queue and self._node is not None:
                await self._commit_batch(self._queue.next_batch())
            elif self._closing and not self._queue:
                return
            else:
                await self._next_signal()

    async def _commit_batch(self, batch: WriteBatch) -> None:
        started = perf_counter() if METRICS.on else 0.0
        attempt = _Attempt()
        missing: BaseException = ServerError(NO_ANSWER)
        try:
            await self._commit(attempt, batch.sequences)
        except _NodeChanged:
            missing = OwnershipLost(DECLARED_DEAD)
        except _Abandoned:
            pass
        except Exception as error:
            logger.exception("changes could not be written")
            missing = error
        finally:
            if METRICS.on and started and None in attempt.outcomes.values():
                record_commits([commit_time(batch.writes, perf_counter() - started)], ())
            for write in batch.writes:
                if id(write) not in attempt.reported:
                    _report(write, attempt.outcomes.get(id(write), missing))
            self._fail_followers(attempt)
        if attempt.has_work:
            self._on_work()

    def _fail_followers(self, attempt: _Attempt) -> None:
        """Refuse the waiting changes that build on refused ones."""
        if not attempt.failed:
            return
        failed = attempt.failed
        for write in self._queue.remove(lambda write: (write.row.number, write.epoch) in failed):
            _report(write, failed[write.row.number, write.epoch])

    async def _commit(self, attempt: _Attempt, sequences: list[list[Write]], *, repeated: bool = False) -> None:
        """Write sequences of changes and decide the outcome of each."""
        node = self._node
        if node is None:
            raise _NodeChanged
        statement = _Statement(self._database, node, sequences)
        # The outcome of a statement that was lost before is not certain.
        has_messages = not repeated and any(_accepts(sequence[0]) for sequence in sequences)
        try:
            outcomes = await self._until_answered(
                node, statement.send, is_final=lambda: has_messages and not statement.repeated
            )
        except CannotWrite as error:
            self._refuse(attempt, [each for each in sequences if _accepts(each[0])], unavailable(error))
            if waiting := [each for each in sequences if not _accepts(each[0])]:
                await self._commit(attempt, waiting)
            return
        except InvalidValue as error:
            await self._split(attempt, sequences, error, repeated=repeated or statement.repeated)
            return
        except (_NodeChanged, _Abandoned):
            raise
        except Exception as error:
            logger.exception("the store refused %d changes", sum(map(len, sequences)))
            attempt.fail(sequences, error)
            return
        repeated = repeated or statement.repeated
        disputed: list[tuple[list[Write], ChangeOutcome]] = []
        for sequence, outcome in zip(sequences, outcomes, strict=True):
            if outcome.kind == "committed":
                attempt.commit(sequence)
                attempt.has_work = attempt.has_work or outcome.queue
            else:
                disputed.append((sequence, outcome))
        if disputed:
            await self._judge(attempt, node, disputed, repeated=repeated)

    def _refuse(self, attempt: _Attempt, sequences: list[list[Write]], error: ServerError) -> None:
        """Report that messages are not accepted, at once: the rest of their batch may wait for long."""
        attempt.fail(sequences, error)
        for sequence in sequences:
            for write in sequence:
                attempt.reported.add(id(write))
                _report(write, error)
        self._fail_followers(attempt)

    async def _judge(
        self, attempt: _Attempt, node: int, disputed: list[tuple[list[Write], ChangeOutcome]], *, repeated: bool
    ) -> None:
        numbers = [sequence[0].row.number for sequence, _ in disputed]
        owners = await self._until_answered(node, lambda: self._database.owners(node, numbers))
        for sequence, outcome in disputed:

            def decide(
                sequence: list[Write] = sequence, outcome: ChangeOutcome = outcome
            ) -> Awaitable[BaseException | None]:
                owner = owners.get(sequence[0].row.number)
                return judge(self._database, self._clock, node, sequence, outcome, owner, repeated=repeated)

            error = await self._until_answered(node, decide)
            if error is None:
                # Whether others of the context are queued went with the lost answer.
                attempt.commit(sequence)
                attempt.has_work = True
            elif len(sequence) > 1 and not sequence[0].epoch and not sequence[0].create:
                # Without a claim each change stands for itself.
                for write in sequence:
                    await self._commit(attempt, [[write]], repeated=repeated)
            else:
                attempt.fail([sequence], error)

    async def _split(
        self, attempt: _Attempt, sequences: list[list[Write]], error: InvalidValue, *, repeated: bool
    ) -> None:
        """Write what can be stored of a statement with a value that cannot."""
        if len(sequences) > 1:
            half = len(sequences) // 2
            await self._commit(attempt, sequences[:half], repeated=repeated)
            await self._commit(attempt, sequences[half:], repeated=repeated)
            return
        (sequence,) = sequences
        if len(sequence) == 1:
            logger.error("the store cannot store a change of task %s: %s", sequence[0].row.id, error)
            attempt.fail(sequences, error)
            return
        half = len(sequence) // 2
        await self._commit(attempt, [sequence[:half]], repeated=repeated)
        refused = attempt.outcomes[id(sequence[half - 1])]
        if refused is not None and sequence[0].epoch:
            attempt.fail([sequence[half:]], refused)
        else:
            await self._commit(attempt, [sequence[half:]], repeated=repeated)

    async def _until_answered(
        self, node: int, call: Callable[[], Awaitable[T]], is_final: Callable[[], bool] = lambda: False
    ) -> T:
        """Call until the database answers. With `is_final`, its refusal to write is an answer.

        Raises:
            CannotWrite: it refuses, and that is final.
            _NodeChanged: the node was declared dead before it did.
            _Abandoned: the store was closed before it did.
        """
        delay, silence, problem = FIRST_DELAY, SILENCE_SECONDS, None
        try:
            while True:
                try:
                    answer = await answer_within(self._clock, silence, call)
                except CannotWrite as error:
                    self._note_refusal(error)
                    if is_final():
                        raise
                    self._refuse_messages(unavailable(error))
                except ConnectionLost as error:
                    if isinstance(error, ConnectionTimeout):
                        silence *= 2  # a database that is only slow gets the time it needs
                    if problem is None:
                        logger.warning("the connection to the database was lost (%s): changes wait", error)
                    problem = error
                else:
                    if problem is not None:
                        logger.info("the database answers again")
                    self._note_success()
                    return answer
                await self._pause(node, delay)
                delay = min(2 * delay, LAST_DELAY)
        finally:
            self._refusal = None

    def _note_refusal(self, error: CannotWrite) -> None:
        """Log it, once: every message gets the same answer, and a small change may find room between two."""
        if self._refused_ms is None:
            logger.error("the database cannot take writes (%s): messages are refused, and running tasks wait", error)
        self._refused_ms = self._clock.now()

    def _note_success(self) -> None:
        if self._refused_ms is not None and self._clock.now() - self._refused_ms > CALM_MS:
            logger.info("the database takes writes again")
            self._refused_ms = None

    def _refuse_messages(self, refusal: ServerError) -> None:
        """Refuse messages from now on, and those that wait behind changes for which the worker waits."""
        self._refusal = refusal
        refused = {_claim_of(write) for write in self._queue.find(_accepts)}
        for write in self._queue.remove(lambda write: _claim_of(write) in refused) if refused else ():
            _report(write, refusal)

    async def _pause(self, node: int, seconds: float) -> None:
        deadline: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self._clock.call_later(seconds, lambda: None if deadline.done() else deadline.set_result(None))
        try:
            while not deadline.done():
                if self._node != node:
                    raise _NodeChanged
                if self._abandoned:
                    raise _Abandoned
                await asyncio.wait((deadline, self._next_signal()), return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()


class _Statement:
    """A commit that is sent until it is answered. `repeated` is True when it was sent more than once."""

    def __init__(self, database: Database, node: int, sequences: list[list[Write]]) -> None:
        self._database = database
        self._node = node
        self._sequences = sequences
        self._sent = 0

    @property
    def repeated(self) -> bool:
        return self._sent > 1

    def send(self) -> Awaitable[list[ChangeOutcome]]:
        self._sent += 1
        return self._database.commit(self._node, self._sequences)


class _Attempt:
    """The outcomes of a batch so far, by the identity of each change.

    `failed` has the errors by task and epoch: later changes build on those. `has_work` is True when a context has
    queued tasks whose turn may have come. `reported` are changes whose callers know already.
    """

    def __init__(self) -> None:
        self.outcomes: dict[int, BaseException | None] = {}
        self.reported: set[int] = set()
        self.failed: dict[tuple[int, int], BaseException] = {}
        self.has_work = False

    def commit(self, sequence: list[Write]) -> None:
        for write in sequence:
            self.outcomes[id(write)] = None

    def fail(self, sequences: list[list[Write]], error: BaseException) -> None:
        for sequence in sequences:
            for write in sequence:
                self.outcomes[id(write)] = error
            first = sequence[0]
            if first.epoch or first.create:
                self.failed[first.row.number, first.epoch or 1] = error


def _accepts(write: Write) -> bool:
    """True for a change that accepts a message, as a new task or an answer: refused, it leaves all as it was."""
    is_new = write.draft or (write.create and not write.opens_draft)
    return is_new or any(note.kind == "answer" for note in write.notes)


def _claim_of(write: Write) -> tuple[int, int]:
    return write.row.number, write.epoch or 1


def _report(write: Write, outcome: BaseException | None) -> None:
    if METRICS.on and outcome is not None:
        record_commits((), (outcome,))
    try:
        write.done(outcome)
    except Exception:
        logger.exception("a change could not be reported")
