"""A language model that speaks the chat API of OpenAI and needs no network: it knows a few answers.

Streams as that API does, checks the key, asks for a tool that it is offered, is too busy when it reads "busy", and
breaks off with an error when it is to tell a story.
"""

from __future__ import annotations

import json
from typing import Any

KEY = "sk-a-key-for-tests"
STORY = "Once upon a time"


async def model_api(scope: Any, receive: Any, send: Any) -> None:
    """The ASGI app: POST /v1/chat/completions."""
    if scope["type"] != "http":
        return
    body = b""
    while (event := await receive())["type"] == "http.request":
        body += event["body"]
        if not event.get("more_body"):
            break
    headers = dict(scope["headers"])
    if (scope["method"], scope["path"]) != ("POST", "/v1/chat/completions"):
        await _refuse(send, 404, "there is no such path")
    elif headers.get(b"authorization") != f"Bearer {KEY}".encode():
        await _refuse(send, 401, "Incorrect API key provided")
    else:
        await _complete(json.loads(body), send)


async def _complete(request: dict[str, Any], send: Any) -> None:
    messages: list[dict[str, Any]] = request["messages"]
    message = _reply(messages, request.get("tools"))
    if message is None:
        await _refuse(send, 429, "Rate limit reached")
        return
    if not request.get("stream"):
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if "tool_calls" in message else "stop"}
        await _answer(send, 200, "application/json", [_object("chat.completion", request, choice)])
        return
    words = message["content"].split(" ")
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": f"{word} "} for word in words[:-1]] + [{"content": words[-1]}]
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    chunks = [f"data: {_object('chat.completion.chunk', request, choice)}\n\n" for choice in choices]
    if message["content"] == STORY:
        end = [f"data: {_error('The server had an error while processing your request')}\n\n"]
    else:
        stop = {"index": 0, "delta": {}, "finish_reason": "stop"}
        end = [f"data: {_object('chat.completion.chunk', request, stop)}\n\n", "data: [DONE]\n\n"]
    await _answer(send, 200, "text/event-stream", [*chunks, *end])


def _reply(messages: list[dict[str, Any]], tools: Any) -> dict[str, Any] | None:
    """The message of the model; None when it is too busy."""
    last = messages[-1]
    questions = [str(each["content"]) for each in messages if each["role"] == "user"]
    if last["role"] == "tool":
        return {"role": "assistant", "content": f"The weather in Lisbon: {last['content']}."}
    if "busy" in questions[-1]:
        return None
    if tools and "weather" in questions[-1]:
        call = {"name": tools[0]["function"]["name"], "arguments": '{"city": "Lisbon"}'}
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": call}],
        }
    if "Spain" in questions[-1]:
        followed = any("capital" in each for each in questions[:-1])
        return {"role": "assistant", "content": "It is Madrid." if followed else "What about Spain?"}
    if "story" in questions[-1]:
        return {"role": "assistant", "content": STORY}
    return {"role": "assistant", "content": "The capital of Portugal is Lisbon."}


def _object(kind: str, request: dict[str, Any], choice: dict[str, Any]) -> str:
    return json.dumps(
        {"id": "chatcmpl-1", "object": kind, "created": 1, "model": request["model"], "choices": [choice]}
    )


def _error(text: str) -> str:
    return json.dumps({"error": {"message": text, "type": "error", "param": None, "code": None}})


async def _refuse(send: Any, status: int, text: str) -> None:
    await _answer(send, status, "application/json", [_error(text)])


async def _answer(send: Any, status: int, media_type: str, pieces: list[str]) -> None:
    # A client that waits before it tries again waits for a millisecond.
    headers = [(b"content-type", media_type.encode()), (b"retry-after-ms", b"1")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    for piece in pieces:
        await send({"type": "http.response.body", "body": piece.encode(), "more_body": True})
    await send({"type": "http.response.body", "body": b""})
