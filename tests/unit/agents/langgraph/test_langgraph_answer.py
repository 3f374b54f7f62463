"""The answer of a LangGraph graph is what it leaves in its state, whatever its models have said on the way."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.prebuilt import ToolNode
from langgraph.runtime import Runtime
from langgraph.types import interrupt
from typing_extensions import TypedDict
from unit.agents.langgraph.graphs import chain, model_of, served, within

from dragoman import Client, State, User
from dragoman.engine.call import CallContext


@pytest.fixture(params=["no checkpointer", "checkpointer"])
def saver(request: pytest.FixtureRequest) -> InMemorySaver | None:
    return InMemorySaver() if request.param == "checkpointer" else None


async def test_text_that_never_reaches_the_state_is_no_part_of_the_answer(start: Any, saver: Any) -> None:
    model = model_of("not relevant", "a better question", "The answer.", "fine", "and better", "Another.")

    async def grade(state: MessagesState) -> dict[str, Any]:
        await model.ainvoke("relevant?")
        return {}

    async def rewrite(state: MessagesState) -> dict[str, Any]:
        return {"messages": [HumanMessage((await model.ainvoke("rewrite")).text)]}

    async def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke("answer")]}

    engine = await start(served(chain(grade, rewrite, answer, checkpointer=saver)))
    task = await engine.send("go", context="c")
    assert (task.text, len(task.artifacts)) == ("The answer.", 1)
    assert (await engine.send("go", context="c")).text == "Another."


@pytest.mark.parametrize("same", [True, False], ids=["the same message", "another message"])
async def test_text_that_a_node_replaces_is_gone(start: Any, same: bool) -> None:
    model = model_of("the secret is 1234")

    async def talk(state: MessagesState) -> dict[str, Any]:
        response = await model.ainvoke("go")
        hidden = response.text.replace("1234", "****")
        return {"messages": [AIMessage(hidden, id=response.id if same else None)]}

    assert (await (await start(served(chain(talk)))).send("go")).text == "the secret is ****"


async def test_a_message_that_a_later_node_removes_is_gone(start: Any) -> None:
    model = model_of("something rude")

    async def talk(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke("go")]}

    async def moderate(state: MessagesState) -> dict[str, Any]:
        return {"messages": [RemoveMessage(id=state["messages"][-1].id)]}

    task = await (await start(served(chain(talk, moderate)))).send("go")
    assert (task.state, task.text) == (State.COMPLETED, "")


async def test_without_a_message_in_the_state_the_streamed_text_is_the_answer(start: Any) -> None:
    model = model_of("only spoken")

    async def talk(state: MessagesState) -> dict[str, Any]:
        await model.ainvoke("go")
        return {}

    assert (await (await start(served(chain(talk)))).send("go")).text == "only spoken"


async def test_the_text_of_a_node_before_its_question_is_not_repeated(start: Any, saver: Any) -> None:
    model = model_of("Let me think.", "Let me think.")

    async def talk(state: MessagesState) -> dict[str, Any]:
        response = await model.ainvoke("go")
        return {"messages": [response, AIMessage(f"Then {interrupt('Sure?')}.")]}

    engine = await start(served(chain(talk, checkpointer=saver)))
    task = await engine.send("go")
    assert (task.question, task.text) == ("Sure?", "Let me think.")
    assert (await engine.send("yes", task=task)).text == "Let me think.\n\nThen yes."


async def test_a_graph_that_shortens_its_conversation_answers_with_what_is_new(start: Any, saver: Any) -> None:
    async def talk(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(f"after {len(state['messages'])}")]}

    async def trim(state: MessagesState) -> dict[str, Any]:
        return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), *state["messages"][-3:]]}

    engine = await start(served(chain(talk, trim, checkpointer=saver)))
    assert [(await engine.send("go", context="c")).text for _ in range(3)] == ["after 1", "after 3", "after 4"]


async def test_two_equal_messages_are_both_in_the_answer(start: Any) -> None:
    async def talk(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage("hello"), AIMessage("hello")]}

    assert (await (await start(served(chain(talk)))).send("go")).text == "hello\n\nhello"


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

    assert (await (await start(served(chain(talk, checkpointer=saver)))).send("go")).text == "yo"


class Dicts(TypedDict):
    messages: Annotated[list[Any], operator.add]


async def test_a_graph_may_keep_its_messages_as_dicts(start: Any, saver: Any) -> None:
    async def talk(state: Dicts) -> dict[str, Any]:
        return {"messages": [{"role": "assistant", "content": f"after {len(state['messages'])}"}]}

    def to_input(ctx: Any) -> Any:
        return {"messages": [{"role": "user", "content": ctx.text}]}

    engine = await start(served(chain(talk, schema=Dicts, checkpointer=saver), to_input=to_input))
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

    graph = chain(talk, checkpointer=saver)
    engine = await start(served(graph, to_input=lambda _: {"messages": form}))
    assert (await engine.send("go", context="c")).text == "hello"


# -- tools -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deep", [False, True], ids=["in the graph", "in a graph within"])
async def test_text_of_a_model_within_a_tool_is_not_streamed(deep: bool) -> None:
    model = model_of("thinking aloud")

    @tool
    async def look() -> str:
        """Look."""
        return (await model.ainvoke("go")).text

    async def call(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage("Let me look.", tool_calls=[{"name": "look", "args": {}, "id": "c1"}])]}

    async def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage("Found it.")]}

    graph = chain(call, ToolNode([look]), answer)
    if deep:
        graph = within(graph)
    async with Client(served(graph)) as client:
        stream = client.stream("go")
        streamed = "".join([event.text async for event in stream])
        assert streamed == stream.task.text == "Let me look.\n\nFound it."


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

    engine = await start(served(chain(talk, context_schema=Caller), context=context))
    anna = CallContext(user=User("anna"))
    task = await engine.send("go", call=anna)
    assert (await engine.send("yes", task=task, call=anna)).text == "anna yes"
