"""The socket between the guard and its server.

A frame is four bytes of length and JSON. Three descriptors are sent with each frame that starts a program.
"""

from __future__ import annotations

import array
import json
import os
import select
import socket
from collections import deque

from .system import close

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Environment variable that holds a program's id and identifies all processes it starts.
ID_VARIABLE = "DRAGOMAN_PROCESS"
_MAX_RECEIVE = 1 << 18


def frame_bytes(facts: dict[str, Any]) -> bytes:
    """Encode a frame."""
    data = json.dumps(facts).encode()
    return len(data).to_bytes(4, "big") + data


def frames_of(received: bytearray) -> list[dict[str, Any]]:
    """Remove all complete frames from the buffer and return them."""
    frames: list[dict[str, Any]] = []
    while len(received) >= 4 and len(received) >= (end := 4 + int.from_bytes(received[:4], "big")):
        frames.append(json.loads(received[4:end]))
        del received[:end]
    return frames


class Link:
    """The guard's end of the socket."""

    def __init__(self, descriptor: int, poll: select.poll) -> None:
        self.descriptor = descriptor
        self._socket = socket.socket(fileno=descriptor)
        self._socket.setblocking(False)
        self._socket.set_inheritable(False)
        self._poll = poll
        poll.register(descriptor, select.POLLIN)
        self._in = bytearray()
        self._out = bytearray()
        # In order of arrival; None for a lost descriptor.
        self._descriptors: deque[int | None] = deque()

    def receive(self) -> list[dict[str, Any]] | None:
        """Return the complete frames that have arrived; None if the server has closed the socket."""
        room, flag = socket.CMSG_SPACE(16 * 4), getattr(socket, "MSG_CMSG_CLOEXEC", 0)
        try:
            data, messages, flags, _ = self._socket.recvmsg(_MAX_RECEIVE, room, flag)
        except BlockingIOError:
            return []
        except OSError:
            return None
        self._store_descriptors(
            b"".join(packed for _, _, packed in messages), truncated=bool(flags & socket.MSG_CTRUNC)
        )
        if not data:
            return None
        self._in += data
        return frames_of(self._in)

    def _store_descriptors(self, packed: bytes, *, truncated: bool) -> None:
        numbers = array.array("i")
        numbers.frombytes(packed[: len(packed) - len(packed) % numbers.itemsize])
        if truncated:
            # Some were lost: the program they were sent for cannot be started, but the next one can.
            close(*numbers)
            self._descriptors.extend([None] * 3)
            return
        for number in numbers:
            os.set_inheritable(number, False)
        self._descriptors.extend(numbers)

    def next_streams(self) -> list[int]:
        """Remove and return the standard streams of the next program; fewer than three if some were lost."""
        return [one for one in (self._descriptors.popleft() for _ in range(3)) if one is not None]

    def queued_descriptors(self) -> list[int]:
        """Return the descriptors of programs that are not started yet, without removing them."""
        return [one for one in self._descriptors if one is not None]

    def report(self, **facts: object) -> None:
        """Send a report, as soon as there is room."""
        self._out += frame_bytes(facts)
        self.flush()

    def flush(self) -> None:
        """Send as much as possible."""
        try:
            while self._out:
                del self._out[: self._socket.send(self._out)]
        except BlockingIOError:
            pass
        except OSError:
            # The server has ended, which `receive` notices.
            self._out.clear()
        self._poll.modify(self.descriptor, select.POLLIN | (select.POLLOUT if self._out else 0))
