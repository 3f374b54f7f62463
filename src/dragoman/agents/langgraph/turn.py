"""One run of a graph: streams its text and collects its interrupts and final state."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from dragoman.agents.text import Paragraphs

if TYPE_CHECKING:
    from dragoman.agents.langgraph.messages import GraphAnswer
    from dragoman.engine.execute.context import Context

# Default name of tool nodes, also in graphs that cannot be inspected.
_TOOLS = "tools"
NodePath = tuple[str, ...]


def tools_of(graph: Any) -> dict[str, Any]:
    """Return the tools of the graph's own nodes by name."""
    all_tools: dict[str, Any] = {}
    for _, tools in _nodes(graph):
        all_tools.update(tools)
    return all_tools


def tool_paths(graph: Any) -> frozenset[NodePath]:
    """Return the paths of all tool nodes, including those of subgraphs."""
    paths = {(name,) for name, _ in _nodes(graph)}
    for prefix, subgraph in graph.get_subgraphs(recurse=True):
        paths |= {(*prefix.split("|"), name) for name, _ in _nodes(subgraph)}
    return frozenset(paths)


def is_within(namespace: str, paths: frozenset[NodePath]) -> bool:
    """Return True if a checkpoint namespace is at or below one of the paths."""
    path = tuple(node.split(":")[0] for node in namespace.split("|"))
    return _TOOLS in path or any(path[:length] in paths for length in range(1, len(path) + 1))


def _nodes(graph: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, node in getattr(graph, "nodes", {}).items():
        tools = getattr(getattr(node, "bound", None), "tools_by_name", None)
        if isinstance(tools, dict):
            yield name, tools


class GraphTextStream:
    """Merges the messages of parallel nodes into one stream.

    One message is streamed at a time; the others are queued until it ends. Text within a tool, including an agent that
    is used as a tool, is not sent to the caller.
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
        """Process the next chunk of a message and yield the text to send now."""
        namespace: str = metadata.get("langgraph_checkpoint_ns", "")
        if message.type not in ("ai", "AIMessageChunk") or is_within(namespace, self._tools):
            return
        message_id, text = str(message.id), str(message.text)
        whole = message.type == "ai"
        if whole and any(where == namespace and "".join(pieces) == text for (where, _), pieces in self._texts.items()):
            # The node returns a copy of the message that its model has streamed.
            return
        self._texts.setdefault((namespace, message_id), []).append(text)
        if self._message_id is not None and message_id != self._message_id and namespace == self._namespace:
            # A node streams one message at a time: an unfinished one was abandoned.
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
        """Yield everything that is still queued at the end of the run."""
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
        """Yield the queued messages, up to and including the first unfinished one."""
        self._message_id = None
        while self._queued and self._message_id is None:
            message_id = next(iter(self._queued))
            namespace = next(where for where, other in self._texts if other == message_id)
            yield from self._emit(message_id, namespace, "".join(self._queued.pop(message_id)))
            if message_id in self._finished:
                self._message_id = None


_MODES = ["messages", "updates", "values"]


class GraphTurn:
    """Runs a graph from its input to its end, or to its next interrupt."""

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
        """Run the graph and yield the text of its models."""
        # Tokens of subgraphs are only streamed with `subgraphs`, and `output_keys` selects the graph's own output.
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
