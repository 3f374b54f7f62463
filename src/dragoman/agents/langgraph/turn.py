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
NodePath = tuple[str, ...]


def tools_of(graph: Any) -> dict[str, Any]:
    """The tools of the graph's own nodes, by their names."""
    all_tools: dict[str, Any] = {}
    for _, tools in _nodes(graph):
        all_tools.update(tools)
    return all_tools


def tool_paths(graph: Any) -> frozenset[NodePath]:
    """The nodes that call tools, also those of graphs within the graph: each as the names on the way to it."""
    paths = {(name,) for name, _ in _nodes(graph)}
    for prefix, subgraph in graph.get_subgraphs(recurse=True):
        paths |= {(*prefix.split("|"), name) for name, _ in _nodes(subgraph)}
    return frozenset(paths)


def is_within(namespace: str, paths: frozenset[NodePath]) -> bool:
    """True when a namespace of a checkpoint is one of these places, or within one."""
    path = tuple(node.split(":")[0] for node in namespace.split("|"))
    return _TOOLS in path or any(path[:length] in paths for length in range(1, len(path) + 1))


def _nodes(graph: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, node in getattr(graph, "nodes", {}).items():
        tools = getattr(getattr(node, "bound", None), "tools_by_name", None)
        if isinstance(tools, dict):
            yield name, tools


class GraphTextStream:
    """Puts the messages of nodes one after the other.

    Nodes may work side by side: one message at a time is streamed, and the others are held until it has ended. What
    is said in a tool, also by another agent that is a tool, is none of the caller's.
    """

    def __init__(self, ctx: Context, tools: frozenset[NodePath]) -> None:
        self.paragraphs = Paragraphs(ctx)
        self._tools = tools
        self._message_id: str | None = None
        self._namespace = ""
        self._queued: dict[str, list[str]] = {}
        self._finished: set[str] = set()
        self._texts: dict[tuple[str, str], list[str]] = {}

    def feed(self, message: Any, metadata: dict[str, Any]) -> Iterator[str]:
        """Take the next piece of a message, and give what can be said now."""
        namespace: str = metadata.get("langgraph_checkpoint_ns", "")
        if message.type not in ("ai", "AIMessageChunk") or is_within(namespace, self._tools):
            return
        message_id, text = str(message.id), str(message.text)
        whole = message.type == "ai"
        if whole and any(where == namespace and "".join(pieces) == text for (where, _), pieces in self._texts.items()):
            # The node gives a copy of what its model has said.
            return
        self._texts.setdefault((namespace, message_id), []).append(text)
        if self._message_id is not None and message_id != self._message_id and namespace == self._namespace:
            # One place says one thing at a time: what was not ended was given up.
            yield from self._emit_queued()
        if self._message_id in (None, message_id):
            yield from self._emit(message_id, namespace, text)
        else:
            self._queued.setdefault(message_id, []).append(text)
        if whole or getattr(message, "chunk_position", None) == "last":
            self._finished.add(message_id)
            if message_id == self._message_id:
                yield from self._emit_queued()

    def flush(self) -> Iterator[str]:
        """The run is over: give what is still held."""
        while self._queued:
            yield from self._emit_queued()

    def _emit(self, message_id: str, namespace: str, text: str) -> Iterator[str]:
        if not text:
            return
        if self._message_id is None:
            self._message_id, self._namespace = message_id, namespace
            self.paragraphs.begin()
        yield self.paragraphs.add(text)

    def _emit_queued(self) -> Iterator[str]:
        """Let those speak who have waited, up to one who has not ended yet."""
        self._message_id = None
        while self._queued and self._message_id is None:
            message_id = next(iter(self._queued))
            namespace = next(where for where, other in self._texts if other == message_id)
            yield from self._emit(message_id, namespace, "".join(self._queued.pop(message_id)))
            if message_id in self._finished:
                self._message_id = None


_MODES = ["messages", "updates", "values"]


class GraphTurn:
    """A graph from its input to its end, or to its next interrupt."""

    def __init__(
        self, ctx: Context, graph: Any, config: dict[str, Any], answer: GraphAnswer, tools: frozenset[NodePath]
    ) -> None:
        self._graph = graph
        self._config = config
        self._answer = answer
        self.text_stream = GraphTextStream(ctx, tools)
        self.interrupts: dict[str, Any] | None = None
        self.values: Any = None

    async def texts(self, graph_input: Any, context: Any) -> AsyncGenerator[str, None]:
        """Run the graph, and give what its models say."""
        # Tokens of graphs within the graph come only with `subgraphs`, and what the author wants to give with its keys.
        keys = self._graph.output_channels
        options = {} if context is None else {"context": context}
        stream = self._graph.astream(
            graph_input, self._config, stream_mode=_MODES, subgraphs=True, output_keys=keys, **options
        )
        async with aclosing(stream) as events:
            async for namespace, mode, event in events:
                if mode == "messages":
                    for text in self.text_stream.feed(*event):
                        yield text
                elif mode == "values" and not namespace:
                    self.values = event
                    self._answer.observe(event)
                elif mode == "updates" and "__interrupt__" in event:
                    self.interrupts = (self.interrupts or {}) | {one.id: one for one in event["__interrupt__"]}
        for text in self.text_stream.flush():
            yield text
