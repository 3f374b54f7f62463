"""LiteLLM's own A2A clients: its SDK's functions, and `acompletion` with an agent as the model.

Runs in the environment of tests/interop/peers/litellm.txt:  litellm_client.py URL [CASE …]
"""

import base64
import os
from typing import Any
from uuid import uuid4

os.environ.update(LITELLM_LOCAL_MODEL_COST_MAP="True", LITELLM_MODE="PRODUCTION", OTEL_SDK_DISABLED="true")

import framework_script as script
import litellm
from a2a.compat.v0_3.types import MessageSendParams, SendMessageRequest, SendStreamingMessageRequest
from conversing import case, converse
from litellm.a2a_protocol import A2AClient, asend_message_streaming

litellm.suppress_debug_info = True


def params(*parts: dict[str, Any], **rest: Any) -> MessageSendParams:
    return MessageSendParams.model_validate(
        {"message": {"kind": "message", "role": "user", "messageId": uuid4().hex, "parts": list(parts), **rest}}
    )


def message(text: str) -> dict[str, Any]:
    return {"kind": "text", "text": text}


async def send(url: str, *parts: dict[str, Any], key: str = "", **rest: Any) -> dict[str, Any]:
    """The task that comes back."""
    request = SendMessageRequest(id=uuid4().hex, params=params(*parts, **rest))
    headers = {"Authorization": f"Bearer {key}"} if key else None
    response = await A2AClient(base_url=url, extra_headers=headers).send_message(request)
    return response.model_dump(mode="json", exclude_none=True)["result"]


def parts_of(task: dict[str, Any]) -> list[dict[str, Any]]:
    return [part for artifact in task.get("artifacts", ()) for part in artifact["parts"]]


def text_of(task: dict[str, Any]) -> str:
    return "".join(part.get("text", "") for part in parts_of(task))


@case
async def text(url: str) -> str:
    return text_of(await send(url, message(f"echo {script.ECHO}")))


async def streamed(url: str, count: int) -> dict[str, Any]:
    request = SendStreamingMessageRequest(id=uuid4().hex, params=params(message(f"stream {count}")))
    events = [
        chunk.model_dump(mode="json", exclude_none=True)["result"]
        async for chunk in asend_message_streaming(request=request, api_base=url)
    ]
    pieces = [part["text"] for event in events for part in event.get("artifact", {}).get("parts", ())]
    return {"answer": "".join(pieces), "pieces": pieces}


@case
async def stream(url: str) -> dict[str, Any]:
    return await streamed(url, script.PIECES)


@case
async def talk(url: str) -> list[str]:
    first, second = (f"echo {word}" for word in script.WORDS)
    begun = await send(url, message(first))
    went_on = await send(url, message(second), contextId=begun["contextId"])
    assert went_on["contextId"] == begun["contextId"]
    return [text_of(begun), text_of(went_on)]


@case
async def ask(url: str) -> dict[str, Any]:
    asked = await send(url, message("ask"))
    assert asked["status"]["state"] == "input-required"
    answered = await send(url, message(script.USER), taskId=asked["id"], contextId=asked["contextId"])
    return {"question": asked["status"]["message"]["parts"][0]["text"], "answer": text_of(answered)}


@case
async def failure(url: str) -> None:
    status = (await send(url, message("fail")))["status"]
    raise RuntimeError(f"{status['state']}: {status['message']['parts'][0]['text']}")


@case
async def file(url: str) -> dict[str, Any]:
    content = {"bytes": base64.b64encode(script.FILE).decode(), "mimeType": script.FILE_TYPE, "name": script.FILE_NAME}
    taken = await send(url, message("take"), {"kind": "file", "file": content})
    [part] = parts_of(await send(url, message("file")))
    return {"sent": text_of(taken), "received": [part["file"][key] for key in ("bytes", "mimeType", "name")]}


@case
async def data(url: str) -> dict[str, Any]:
    taken = await send(url, message("take"), {"kind": "data", "data": script.DATA})
    [part] = parts_of(await send(url, message("data")))
    return {"sent": text_of(taken), "received": part["data"]}


async def complete(url: str, *messages: str, stream: bool = False) -> Any:
    """A chat with the agent as its model."""
    chat = [
        {"role": "user" if not number % 2 else "assistant", "content": each} for number, each in enumerate(messages)
    ]
    return await litellm.acompletion(model="a2a/scripted", api_base=url, messages=chat, stream=stream)


async def content(url: str, *messages: str) -> str:
    return (await complete(url, *messages)).choices[0].message.content


@case
async def completion_text(url: str) -> str:
    return await content(url, f"echo {script.ECHO}")


@case
async def completion_stream(url: str) -> dict[str, Any]:
    chunks = await complete(url, f"stream {script.PIECES}", stream=True)
    pieces = [piece async for chunk in chunks if (piece := chunk.choices[0].delta.content)]
    return {"answer": "".join(pieces), "pieces": pieces}


@case
async def completion_talk(url: str) -> list[str]:
    first, second = (f"echo {word}" for word in script.WORDS)
    begun = await content(url, first)
    return [begun, await content(url, first, begun, second)]


@case
async def completion_ask(url: str) -> dict[str, Any]:
    question = await content(url, "ask")
    return {"question": question, "answer": await content(url, "ask", question, script.USER)}


@case
async def completion_failure(url: str) -> str:
    return await content(url, "fail")


@case
async def completion_file(url: str) -> str:
    return await content(url, "file")


@case
async def completion_data(url: str) -> str:
    return await content(url, "data")


# What other tests ask for.


@case
async def token(_: str) -> list[str]:
    url, key = os.environ["GUARDED"].split()
    task = await send(url, message(f"echo {script.ECHO}"), key=key)
    completed = await litellm.acompletion(
        model="a2a/scripted", api_base=url, api_key=key, messages=[{"role": "user", "content": f"echo {script.ECHO}"}]
    )
    return [text_of(task), completed.choices[0].message.content]


@case
async def completion_progress(url: str) -> list[str]:
    message = f"progress {script.ECHO}"
    chunks = await complete(url, message, stream=True)
    pieces = [chunk.choices[0].delta.content or "" async for chunk in chunks]
    return ["".join(pieces), await content(url, message)]


@case
async def long(url: str) -> str:
    return (await streamed(url, script.MANY))["answer"]


converse()
