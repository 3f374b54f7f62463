"""What an executor writes while it works, which may turn out to be its answer."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from dragoman.model.json import encode

if TYPE_CHECKING:
    from dragoman.model.message import Message
    from dragoman.model.part import Part

MAX_REMARK_BYTES = 1_000_000


class Remarks:
    """The messages of a working executor, the last `MAX_REMARK_BYTES` of them; `cut` is True when there were more."""

    def __init__(self) -> None:
        self._messages: deque[tuple[Message, int]] = deque()
        self._bytes = 0
        self.cut = False

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of all messages."""
        return tuple(part for message, _ in self._messages for part in message.parts)

    def add(self, message: Message) -> None:
        """Add a message, and forget the oldest where there are too many. The last one stays, whatever its size."""
        size = len(encode(message))
        self._messages.append((message, size))
        self._bytes += size
        while self._bytes > MAX_REMARK_BYTES and len(self._messages) > 1:
            self._bytes -= self._messages.popleft()[1]
            self.cut = True

    def clear(self) -> None:
        """Forget all."""
        self._messages.clear()
        self._bytes, self.cut = 0, False
