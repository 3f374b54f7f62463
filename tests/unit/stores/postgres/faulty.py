"""A database that loses connections as a test says, in front of the simulated one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from cluster.simulated_database import SimulatedDatabase

from dragoman.engine.ports.rows import TaskTable
from dragoman.engine.ports.store import Write
from dragoman.stores.postgres.database import CannotWrite, ConnectionLost, InvalidValue


class FaultyDatabase:
    """Passes every statement on. `faults` are taken one per statement of a name: words, or a callback.

    An "unsent" or "refused" statement is not applied, the answer of a "swallowed" one is lost. A callback is awaited
    with the statement, and returns its answer. While `down`, nothing is applied. `invalid` are changes that
    cannot be stored.
    """

    def __init__(self, simulated: SimulatedDatabase) -> None:
        self.simulated = simulated
        self.faults: dict[str, list[str | Callable[[Awaitable[Any]], Awaitable[Any]]]] = {}
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.down = False
        self.invalid: Callable[[Write], bool] = lambda _: False

    def fail(self, name: str, *faults: str | Callable[[Awaitable[Any]], Awaitable[Any]]) -> None:
        """Let the next statements of this name fail."""
        self.faults.setdefault(name, []).extend(faults)

    def sent(self, name: str) -> list[tuple[Any, ...]]:
        """The arguments of all statements of this name."""
        return [arguments for called, arguments in self.calls if called == name]

    async def open(self, tables: Sequence[TaskTable]) -> None:
        for table in tables:
            self.simulated.add_table(table)

    async def close(self) -> None:
        pass

    async def run(self, query: Callable[..., Any], /, *arguments: Any, **options: Any) -> Any:
        """Pass a query on as a statement of its name."""
        return await getattr(self, query.__name__)(*arguments, **options)

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self.simulated, name)

        async def call(*arguments: Any, **options: Any) -> Any:
            self.calls.append((name, arguments))
            await asyncio.sleep(0)
            if self.down:
                raise ConnectionLost("it is down")
            faults = self.faults.get(name)
            fault = faults.pop(0) if faults else None
            if fault == "unsent":
                raise ConnectionLost("it was not sent")
            if fault == "refused":
                raise CannotWrite("no space left on device")
            if callable(fault):
                return await fault(method(*arguments, **options))
            if name == "commit" and any(self.invalid(write) for sequence in arguments[1] for write in sequence):
                raise InvalidValue("a value cannot be stored")
            result = await method(*arguments, **options)
            if fault == "swallowed":
                raise ConnectionLost("its answer is lost")
            return result

        return call
