"""langgraph-api's own A2A endpoint: a graph with a scripted model, on the server that keeps everything in memory.

Runs in the environment of tests/interop/peers/langgraph-api.txt:  langgraph_api_server.py [PORT]
"""

import base64
import json
import os
from collections.abc import Iterator
from typing import Any

import framework_script as script
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

GRAPH = "scripted"
ASSISTANT = "fd238eb7-ab9f-578c-83b2-cf96df4460ab"  # which it makes of the graph's name


class Scripted(BaseChatModel):
    """A model that plays the script."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _stream(self, messages: list[BaseMessage], *args: Any, **options: Any) -> Iterator[ChatGenerationChunk]:
        for content in contents(messages[-1]):
            yield ChatGenerationChunk(message=AIMessageChunk(content))

    def _generate(self, messages: list[BaseMessage], *args: Any, **options: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage("".join(contents(messages[-1]))))])


def contents(message: BaseMessage) -> list[Any]:
    first, rest = script.words(message.text)
    match first:
        case "echo":
            return [rest]
        case "stream":
            return script.pieces(int(rest))
        case "take":
            blocks = [block for block in message.content if isinstance(block, dict) and block["type"] != "text"]
            return ["\n".join(taken(block) for block in blocks)]
        case _:
            raise RuntimeError(script.FAILURE)


def taken(block: dict[str, Any]) -> str:
    raw = base64.b64decode(block["base64"])
    return script.taken_file(raw, block.get("mime_type"), block.get("extras", {}).get("filename"))


class State(MessagesState, total=False):
    """Data that comes with a message is put into members of the state."""

    n: int
    list: list[Any]
    deep: dict[str, Any]


async def play(state: State) -> dict[str, Any]:
    """Answer the last message."""
    first, _ = script.words(state["messages"][-1].text)
    given = {key: state[key] for key in script.DATA if key in state}
    if first == "ask":
        return {"messages": [AIMessage(script.greeting(interrupt(script.QUESTION)))]}
    if first == "file":
        image = {
            "type": "image",
            "base64": base64.b64encode(script.FILE).decode(),
            "mime_type": script.FILE_TYPE,
            "extras": {"filename": script.FILE_NAME},
        }
        return {"messages": [AIMessage([image])]}
    if first == "take" and given:
        return {"messages": [AIMessage(script.taken_data(given))]}
    return {"messages": [await Scripted().ainvoke(state["messages"])]}


graph = StateGraph(State).add_node("play", play).add_edge(START, "play").compile()


def app_at(url: str) -> Any:
    """Their app, as `langgraph dev` configures it."""
    os.environ |= {
        "MIGRATIONS_PATH": "__inmem",
        "DATABASE_URI": ":memory:",
        "REDIS_URI": "fake",
        "LANGSERVE_GRAPHS": json.dumps({GRAPH: f"{__file__}:graph"}),
        "LANGSMITH_LANGGRAPH_API_VARIANT": "local_dev",
        "LANGSMITH_TRACING": "false",
        "LANGGRAPH_API_URL": url,
        "LANGGRAPH_DISABLE_FILE_PERSISTENCE": "true",
        "LANGGRAPH_RUNTIME_EDITION": "inmem",
        "LANGGRAPH_NO_VERSION_CHECK": "true",
        "N_JOBS_PER_WORKER": "2",
    }
    from langgraph_api.server import app

    return app


if __name__ == "__main__":
    from serving import serve

    serve(app_at, f"/a2a/{ASSISTANT}")
