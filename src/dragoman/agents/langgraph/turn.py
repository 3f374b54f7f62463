"""One run of a graph: what it says, what it waits for, what comes out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from dragoman.agents.text import Paragraphs

if TYPE_CHECKING:
    from dragoman.agents.langgraph.messages import GraphAnswer
    from dragoman.engine.execute.context import Context

# What nodes for tools are called where nobody says otherwise, also in graphs that cannot be looked into.
_TOOLS = "tools"
Path = tuple[str, ...]


def tools_of(graph: Any) -> dict[str, Any]:
    """The tools of the graph's own nodes, by their names."""
    found: dict[str, Any] = {}
    for _, tools in _nodes(graph):
        found.update(tools)
    return found


def tool_places(graph: Any) -> frozenset[Path]:
    """The nodes that call tools, also those of graphs within the graph: each as the names on the way to it."""
    places = {(name,) for name, _ in _nodes(graph)}
    for way, within in graph.get_subgraphs(recurse=True):
        places |= {(*way.split("|"), name) for name, _ in _nodes(within)}
    return frozenset(places)


def is_within(place: str, places: frozenset[Path]) -> bool:
    """True when a namespace of a checkpoint is one of these places, or within one."""
    way = tuple(node.split(":")[0] for node in place.split("|"))
    return _TOOLS in way or any(way[:length] in places for length in range(1, len(way) + 1))


def _nodes(graph: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, node in getattr(graph, "nodes", {}).items():
        tools = getattr(getattr(node, "bound", None), "tools_by_name", None)
        if isinstance(tools, dict):
            yield name, tools


class GraphSpeech:
    """Puts the messages of nodes one after the other.

    Nodes may work side by side: one message at a time is streamed, and the others are held until it has ended. What
    is said in a tool, also by another agent that is a tool, is none of the caller's.
    """

    def __init__(self, ctx: Context, tools: frozenset[Path]) -> None:
        self.paragraphs = Paragraphs(ctx)
        self._tools = tools
        self._speaker: str | None = None
        self._place = ""
        self._held: dict[str, list[str]] = {}
        self._ended: set[str] = set()
        self._texts: dict[tuple[str, str], list[str]] = {}

    def hear(self, message: Any, about: dict[str, Any]) -> Iterator[str]:
        """Take the next piece of a message, and give what can be said now."""
        place: str = about.get("langgraph_checkpoint_ns", "")
        if message.type not in ("ai", "AIMessageChunk") or is_within(place, self._tools):
            return
        speaker, text = str(message.id), str(message.text)
        whole = message.type == "ai"
        if whole and any(where == place and "".join(said) == text for (where, _), said in self._texts.items()):
            # The node gives a copy of what its model has said.
            return
        self._texts.setdefault((place, speaker), []).append(text)
        if self._speaker is not None and speaker != self._speaker and place == self._place:
            # One place says one thing at a time: what was not ended was given up.
            yield from self._next()
        if self._speaker in (None, speaker):
            yield from self._say(speaker, place, text)
        else:
            self._held.setdefault(speaker, []).append(text)
        if whole or getattr(message, "chunk_position", None) == "last":
            self._ended.add(speaker)
            if speaker == self._speaker:
                yield from self._next()

    def rest(self) -> Iterator[str]:
        """The run is over: give what is still held."""
        while self._held:
            yield from self._next()

    def _say(self, speaker: str, place: str, text: str) -> Iterator[str]:
        if not text:
            return
        if self._speaker is None:
            self._speaker, self._place = speaker, place
            self.paragraphs.begin()
        yield self.paragraphs.add(text)

    def _next(self) -> Iterator[str]:
        """Let those speak who have waited, up to one who has not ended yet."""
        self._speaker = None
        while self._held and self._speaker is None:
            speaker = next(iter(self._held))
            place = next(where for where, other in self._texts if other == speaker)
            yield from self._say(speaker, place, "".join(self._held.pop(speaker)))
            if speaker in self._ended:
                self._speaker = None


_MODES = ["messages", "updates", "values"]


class GraphTurn:
    """A graph from its input to its end, or to its next interrupt."""

    def __init__(
        self, ctx: Context, graph: Any, config: dict[str, Any], answer: GraphAnswer, tools: frozenset[Path]
    ) -> None:
        self._graph = graph
        self._config = config
        self._answer = answer
        self.speech = GraphSpeech(ctx, tools)
        self.interrupts: dict[str, Any] | None = None
        self.values: Any = None

    async def texts(self, given: Any, context: Any) -> AsyncGenerator[str, None]:
        """Run the graph, and give what its models say."""
        # Tokens of graphs within the graph come only with `subgraphs`, and what the author wants to give with its keys.
        keys = self._graph.output_channels
        options = {} if context is None else {"context": context}
        stream = self._graph.astream(
            given, self._config, stream_mode=_MODES, subgraphs=True, output_keys=keys, **options
        )
        async with aclosing(stream) as events:
            async for namespace, mode, event in events:
                if mode == "messages":
                    for text in self.speech.hear(*event):
                        yield text
                elif mode == "values" and not namespace:
                    self.values = event
                    self._answer.see(event)
                elif mode == "updates" and "__interrupt__" in event:
                    self.interrupts = (self.interrupts or {}) | {one.id: one for one in event["__interrupt__"]}
        for text in self.speech.rest():
            yield text
