"""Cutting a stream of bytes into server-sent events."""

from __future__ import annotations


class EventCutter:
    """Gives the events that are complete; keeps the rest until more bytes come."""

    def __init__(self) -> None:
        self._rest = b""
        self._between = b""

    def feed(self, chunk: bytes) -> list[tuple[int | None, bytes]]:
        """The number, if there is one, and the data of each event. Comments are dropped."""
        rest = self._rest + chunk
        if not self._between:
            if b"\n" not in rest:
                self._rest = rest
                return []
            # A server ends its lines in one way or the other, never in both.
            self._between = b"\r\n\r\n" if b"\r\n" in rest else b"\n\n"
        *events, self._rest = rest.split(self._between)
        return [found for event in events if (found := _read(event)) is not None]


def _read(event: bytes) -> tuple[int | None, bytes] | None:
    number: int | None = None
    data: bytes | None = None
    for line in event.split(b"\n"):
        if line.startswith(b"data: "):
            data = line[6:].rstrip(b"\r")
        elif line.startswith(b"id: "):
            # Some servers have ids that are no numbers.
            number = int(line[4:]) if line[4:].strip().isdigit() else None
    return None if data is None else (number, data)
