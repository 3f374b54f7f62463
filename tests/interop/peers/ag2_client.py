"""An AG2 agent whose model is a remote agent: AG2's own A2A client.

Runs in the environment of tests/interop/peers/ag2.txt:  ag2_client.py URL [CASE …]
"""

import base64
from typing import Any

import framework_script as script
from a2a.types import Part
from ag2 import Agent, MemoryStream
from ag2.a2a import A2AConfig
from ag2.a2a.errors import A2ATaskFailedError
from ag2.a2a.events import A2ATaskArtifactUpdate
from ag2.a2a.mappers.parts import part_data_to_python
from ag2.events import BinaryInput, DataInput, Input, ModelMessageChunk
from conversing import case, converse


async def answer(
    url: str, *words: str | Input, stream: Any = None, streaming: bool = True, **options: Any
) -> str | None:
    """What the agent answers."""
    config = A2AConfig(card_url=url, streaming=streaming, polling_interval=0.01)
    return (await Agent("near", config=config, **options).ask(*words, stream=stream)).body


@case
async def text(url: str) -> str | None:
    return await answer(url, f"echo {script.ECHO}", streaming=False)


@case
async def stream(url: str) -> dict[str, Any]:
    watched = MemoryStream()
    pieces: list[str] = []
    watched.where(ModelMessageChunk).subscribe(lambda chunk: pieces.append(chunk.content))
    return {"answer": await answer(url, f"stream {script.PIECES}", stream=watched), "pieces": pieces}


@case
async def talk(url: str) -> list[str | None]:
    first, second = script.WORDS
    reply = await Agent("near", config=A2AConfig(card_url=url)).ask(f"echo {first}")
    return [reply.body, (await reply.ask(f"echo {second}")).body]


@case
async def ask(url: str) -> dict[str, Any]:
    asked: list[str] = []

    def hook(event: Any) -> str:
        asked.append(event.content)
        return script.USER

    answered = await answer(url, "ask", hitl_hook=hook)
    return {"question": "".join(asked), "answer": answered}


@case
async def failure(url: str) -> str | None:
    try:
        return await answer(url, "fail")
    except A2ATaskFailedError as failed:
        raise RuntimeError("".join(part.text for part in failed.task.status.message.parts)) from failed


async def parts(url: str, words: str) -> list[Part]:
    """The parts of the artifacts, which AG2 shows to those who watch its stream."""
    watched = MemoryStream()
    found: list[Part] = []
    watched.where(A2ATaskArtifactUpdate).subscribe(lambda event: found.extend(event.update.artifact.parts))
    await answer(url, words, stream=watched)
    return found


@case
async def file(url: str) -> dict[str, Any]:
    named = {"filename": script.FILE_NAME}
    sent = await answer(url, "take", BinaryInput(script.FILE, media_type=script.FILE_TYPE, vendor_metadata=named))
    [part] = await parts(url, "file")
    return {"sent": sent, "received": [base64.b64encode(part.raw).decode(), part.media_type, part.filename]}


@case
async def data(url: str) -> dict[str, Any]:
    sent = await answer(url, "take", DataInput(script.DATA))
    [part] = await parts(url, "data")
    return {"sent": sent, "received": part_data_to_python(part)}


converse()
