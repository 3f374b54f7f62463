"""Graphs of LangGraph, made of a few nodes, and the agents that serve them."""

from __future__ import annotations

from typing import Any

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph

from dragoman import Agent
from dragoman.agents.langgraph.run import LangGraphRuns
from dragoman.server.agent.base import Backend


def served(graph: Any, **options: Any) -> Agent:
    """An agent that serves a graph."""
    runs = LangGraphRuns(graph, **options)
    return Agent("graph", Backend(runs.run, canceled=runs.canceled))


def model_of(*texts: str) -> GenericFakeChatModel:
    """A model that says one text after the other, word by word."""
    return GenericFakeChatModel(messages=iter([AIMessage(text) for text in texts]))


def chain(*nodes: Any, schema: Any = MessagesState, context_schema: Any = None, **options: Any) -> Any:
    """A graph of these nodes one after the other."""
    builder = StateGraph(schema, context_schema=context_schema)
    before = START
    for node in nodes:
        name = getattr(node, "__name__", "tools")
        builder.add_node(name, node)
        builder.add_edge(before, name)
        before = name
    return builder.compile(**options)


def within(graph: Any) -> Any:
    """A graph with this one as its only node."""
    return StateGraph(MessagesState).add_node("inner", graph).add_edge(START, "inner").compile()
