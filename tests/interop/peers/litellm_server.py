"""LiteLLM's proxy: its gateway before an A2A agent, and its completion bridge, which makes an agent of a model.

Runs in the environment of tests/interop/peers/litellm.txt:  litellm_server.py URL [PORT]

    /a2a/gateway-1.0, /a2a/gateway-0.3   the agent at the URL, through the gateway, in either version
    /a2a/bridge                          a scripted model
"""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

os.environ.update(
    LITELLM_LOCAL_MODEL_COST_MAP="True",
    LITELLM_MODE="PRODUCTION",  # no .env file
    DISABLE_ADMIN_UI="True",
    NO_DOCS="True",
    OTEL_SDK_DISABLED="true",
)

import framework_script as script
import litellm
from litellm import CustomLLM, ModelResponse
from litellm.proxy.proxy_server import app
from litellm.types.utils import GenericStreamingChunk
from serving import serve


def answer(messages: list[dict[str, Any]]) -> list[str]:
    """What the model says, in pieces."""
    first, rest = script.words(messages[-1]["content"])
    match first:
        case "echo":
            return [rest]
        case "stream":
            return script.pieces(int(rest))
        case "fail":
            raise litellm.APIError(500, script.FAILURE, llm_provider="scripted", model="scripted")
        case "take":
            return [script.NOTHING]
        case _:
            return [script.unknown(first)]


class Scripted(CustomLLM):
    """A model that plays the script."""

    async def acompletion(self, *args: Any, **options: Any) -> ModelResponse:
        whole = "".join(answer(options["messages"]))
        return await litellm.acompletion(model="openai/scripted", messages=options["messages"], mock_response=whole)

    async def astreaming(self, *args: Any, **options: Any) -> AsyncIterator[GenericStreamingChunk]:
        pieces = answer(options["messages"])
        for number, piece in enumerate(pieces, 1):
            done = number == len(pieces)
            yield GenericStreamingChunk(
                text=piece, is_finished=done, finish_reason="stop" if done else "", index=0, tool_use=None, usage=None
            )
            await asyncio.sleep(0)


scripted = Scripted()
folder = tempfile.TemporaryDirectory()


def agent(name: str, url: str, version: str, **rest: Any) -> dict[str, Any]:
    """An agent of the proxy; the address of its card becomes the proxy's."""
    card = {
        "name": name,
        "description": script.DESCRIPTION,
        "url": url,
        "version": "1",
        "protocolVersion": version,
        "capabilities": {"streaming": True},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [],
    }
    if version != "0.3":
        card["supportedInterfaces"] = [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": version}]
    return {"agent_name": name, "agent_card_params": card, **rest}


def app_before(behind: str) -> Any:
    """The proxy, with its gateway before this agent."""
    config = {
        "agent_list": [
            agent("gateway-1.0", behind, "1.0"),
            agent("gateway-0.3", f"{behind}/a2a", "0.3"),  # as the card has it
            agent("bridge", "", "1.0", litellm_params={"custom_llm_provider": "scripted", "model": "scripted"}),
        ],
        "litellm_settings": {
            "custom_provider_map": [{"provider": "scripted", "custom_handler": "litellm_server.scripted"}]
        },
    }
    path = Path(folder.name) / "config.yaml"
    path.write_text(json.dumps(config))  # which is YAML
    os.environ["CONFIG_FILE_PATH"] = str(path)
    return app


if __name__ == "__main__":
    url = sys.argv.pop(1)
    serve(lambda _: app_before(url))
