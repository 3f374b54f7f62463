"""One numbered entry of a task's journal: exactly one wire event."""

from __future__ import annotations

from msgspec import structs

from dragoman.model.event import ArtifactUpdate, StatusUpdate, StreamResponse, response_of
from dragoman.model.json import decode_event, encode
from dragoman.model.message import Message
from dragoman.model.state import State
from dragoman.model.task import Task

_LARGE = 65_536


class Record:
    """An event with its number and its canonical bytes, which are made once and forwarded as they are.

    A record read from a store holds only bytes; it is decoded when somebody needs more. `spelled` is for the edge: what
    has been written to one subscriber need not be spelled again for the next.
    """

    __slots__ = ("_response", "body", "generation", "spelled")

    def __init__(self, generation: int, body: bytes, response: StreamResponse | None = None) -> None:
        self.generation = generation
        self.body = body
        self.spelled: dict[object, bytes] = {}
        self._response = response

    @classmethod
    def of(cls, generation: int, event: Task | Message | StatusUpdate | ArtifactUpdate) -> Record:
        """Encode an event once, for the store and for every subscriber; canonical bytes carry no generation."""
        if isinstance(event, Task) and event.generation is not None:
            event = structs.replace(event, generation=None)
        response = response_of(event)
        body = encode(response)
        if len(body) > _LARGE:  # the encoder leaves up to as much again behind it
            body = bytes(memoryview(body))
        return cls(generation, body, response)

    @property
    def response(self) -> StreamResponse:
        """The event in its envelope."""
        if self._response is None:
            self._response = decode_event(self.body)
        return self._response

    @property
    def event(self) -> Task | Message | StatusUpdate | ArtifactUpdate:
        """The event itself."""
        return self.response.payload

    @property
    def state(self) -> State | None:
        """The state this event puts the task in; None when it leaves the state alone."""
        # Most records of a stream are artifact chunks: tell them apart without decoding.
        if self.body.startswith(b'{"artifactUpdate"'):
            return None
        event = self.event
        if isinstance(event, (StatusUpdate, Task)):
            return event.status.state
        return None
