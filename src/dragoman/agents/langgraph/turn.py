"""One call of a graph: what it says, what it waits for, what comes out."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from dragoman.agents.langgraph.speech import GraphSpeech

if TYPE_CHECKING:
    from dragoman.agents.langgraph.messages import GraphAnswer
    from dragoman.agents.langgraph.tools import Path
    from dragoman.engine.execute.context import Context

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
