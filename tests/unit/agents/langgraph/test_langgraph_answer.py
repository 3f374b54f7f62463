"""The answer of a LangGraph graph is what it leaves in its state, whatever its models have said on the way."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.prebuilt import ToolNode
from langgraph.runtime import Runtime
from langgraph.types import interrupt
from typing_extensions import TypedDict

from dragoman import Agent, Client, State, User
from dragoman.agents.langgraph.run import LangGraphRuns
from dragoman.engine.call import CallContext


def _served(graph: Any, **options: Any) -> Agent:
    return Agent("graph", run=partial(LangGraphRuns(graph, **options).run))


def _model(*texts: str) -> GenericFakeChatModel:
    return GenericFakeChatModel(messages=iter([AIMessage(text) for text in texts]))


def _builder(*nodes: Any, schema: Any = MessagesState, **options: Any) -> Any:
    builder = StateGraph(schema, **options)
    before = START
    for node in nodes:
        name = getattr(node, "__name__", "lookup")
        builder.add_node(name, node)
        builder.add_edge(before, name)
        before = name
    return builder


@pytest.fixture(params=["no checkpointer", "checkpointer"])
def saver(request: pytest.FixtureRequest) -> InMemorySaver | None:
    return InMemorySaver() if request.param == "checkpointer" else None


async def test_what_never_reaches_the_state_is_no_part_of_the_answer(start: Any, saver: Any) -> None:
    model = _model("not relevant", "a better question", "The answer.", "fine", "and better", "Another.")

    async def grade(state: MessagesState) -> dict[str, Any]:
        await model.ainvoke("relevant?")
        return {}

    async def rewrite(state: MessagesState) -> dict[str, Any]:
        return {"messages": [HumanMessage((await model.ainvoke("rewrite")).text)]}

    async def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke("answer")]}

    engine = await start(_served(_builder(grade, rewrite, answer).compile(checkpointer=saver)))
    task = await engine.send("go", context="c")
    assert (task.text, len(task.artifacts)) == ("The answer.", 1)
    assert (await engine.send("go", context="c")).text == "Another."


@pytest.mark.parametrize("same", [True, False], ids=["the same message", "another message"])
async def test_what_a_node_blacks_out_is_gone(start: Any, same: bool) -> None:
    model = _model("the secret is 1234")

    async def talk(state: MessagesState) -> dict[str, Any]:
        response = await model.ainvoke("go")
        hidden = response.text.replace("1234", "****")
        return {"messages": [AIMessage(hidden, id=response.id if same else None)]}

    assert (await (await start(_served(_builder(talk).compile()))).send("go")).text == "the secret is ****"


async def test_what_a_later_node_takes_back_is_gone(start: Any) -> None:
    model = _model("something rude")

    async def talk(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke("go")]}

    async def moderate(state: MessagesState) -> dict[str, Any]:
        return {"messages": [RemoveMessage(id=state["messages"][-1].id)]}

    task = await (await start(_served(_builder(talk, moderate).compile()))).send("go")
    assert (task.state, task.text) == (State.COMPLETED, "")


async def test_a_graph_that_leaves_no_message_has_said_what_its_model_said(start: Any) -> None:
    model = _model("only spoken")

    async def talk(state: MessagesState) -> dict[str, Any]:
        await model.ainvoke("go")
        return {}

    assert (await (await start(_served(_builder(talk).compile()))).send("go")).text == "only spoken"


async def test_a_node_that_speaks_before_it_asks_is_not_heard_twice(start: Any, saver: Any) -> None:
    model = _model("Let me think.", "Let me think.")

    async def talk(state: MessagesState) -> dict[str, Any]:
        response = await model.ainvoke("go")
        return {"messages": [response, AIMessage(f"Then {interrupt('Sure?')}.")]}

    engine = await start(_served(_builder(talk).compile(checkpointer=saver)))
    task = await engine.send("go")
    assert (task.question, task.text) == ("Sure?", "Let me think.")
    assert (await engine.send("yes", task=task)).text == "Let me think.\n\nThen yes."


async def test_a_graph_that_shortens_its_conversation_answers_with_what_is_new(start: Any, saver: Any) -> None:
    async def talk(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(f"after {len(state['messages'])}")]}

    async def trim(state: MessagesState) -> dict[str, Any]:
        return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), *state["messages"][-3:]]}

    engine = await start(_served(_builder(talk, trim).compile(checkpointer=saver)))
    assert [(await engine.send("go", context="c")).text for _ in range(3)] == ["after 1", "after 3", "after 4"]


async def test_the_same_words_twice_are_said_twice(start: Any) -> None:
    async def talk(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage("hello"), AIMessage("hello")]}

    assert (await (await start(_served(_builder(talk).compile()))).send("go")).text == "hello\n\nhello"


# -- the forms of messages ---------------------------------------------------------------------------------------------

FORMS = {
    "dicts": [{"role": "assistant", "content": "yo"}],
    "a dict": {"role": "assistant", "content": "yo"},
    "pairs": [("assistant", "yo")],
    "a message": AIMessage("yo"),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
async def test_nodes_may_give_messages_in_any_form(start: Any, form: Any, saver: Any) -> None:
    async def talk(state: MessagesState) -> dict[str, Any]:
        return {"messages": form}

    assert (await (await start(_served(_builder(talk).compile(checkpointer=saver)))).send("go")).text == "yo"


class Dicts(TypedDict):
    messages: Annotated[list[Any], operator.add]


async def test_a_graph_may_keep_its_messages_as_dicts(start: Any, saver: Any) -> None:
    async def talk(state: Dicts) -> dict[str, Any]:
        return {"messages": [{"role": "assistant", "content": f"after {len(state['messages'])}"}]}

    def to_input(ctx: Any) -> Any:
        return {"messages": [{"role": "user", "content": ctx.text}]}

    engine = await start(_served(_builder(talk, schema=Dicts).compile(checkpointer=saver), to_input=to_input))
    assert [(await engine.send("go", context="c")).text for _ in range(2)] == ["after 1", "after 3"]


INPUTS = {
    "a text": "hello",
    "a pair": ("user", "hello"),
    "a message": HumanMessage("hello"),
    "dicts": [{"role": "user", "content": "hello"}],
}


@pytest.mark.parametrize("form", INPUTS.values(), ids=INPUTS)
async def test_the_author_may_give_messages_in_any_form(start: Any, form: Any, saver: Any) -> None:
    async def talk(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(" ".join(message.text for message in state["messages"]))]}

    graph = _builder(talk).compile(checkpointer=saver)
    engine = await start(_served(graph, to_input=lambda _: {"messages": form}))
    assert (await engine.send("go", context="c")).text == "hello"


# -- tools -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deep", [False, True], ids=["in the graph", "in a graph within"])
async def test_what_is_said_in_a_tool_is_not_streamed_whatever_its_node_is_called(deep: bool) -> None:
    model = _model("thinking aloud")

    @tool
    async def look() -> str:
        """Look."""
        return (await model.ainvoke("go")).text

    async def call(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage("", tool_calls=[{"name": "look", "args": {}, "id": "c1"}])]}

    async def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage("Found it.")]}

    graph = _builder(call, ToolNode([look]), answer).compile()
    if deep:
        graph = StateGraph(MessagesState).add_node("inner", graph).add_edge(START, "inner").compile()
    async with Client(_served(graph)) as client:
        stream = client.stream("go")
        streamed = "".join([event.text async for event in stream])
        assert (streamed, stream.task.text) == ("Found it.", "Found it.")


# -- the graph's context -----------------------------------------------------------------------------------------------


@dataclass
class Caller:
    name: str


@pytest.mark.parametrize(
    "context", [Caller("anna"), lambda ctx: Caller(ctx.user.id)], ids=["a value", "made for every run"]
)
async def test_the_graph_has_the_context_that_it_wants(start: Any, context: Any) -> None:
    async def talk(state: MessagesState, runtime: Runtime[Caller]) -> dict[str, Any]:
        return {"messages": [AIMessage(f"{runtime.context.name} {interrupt('Sure?')}")]}

    engine = await start(_served(_builder(talk, context_schema=Caller).compile(), context=context))
    anna = CallContext(user=User("anna"))
    task = await engine.send("go", call=anna)
    assert (await engine.send("yes", task=task, call=anna)).text == "anna yes"
