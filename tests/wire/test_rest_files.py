"""Files of 0.3 over REST, which the SDKs encode in two ways, to and from each of them."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from dragoman import Agent, Context, Part
from dragoman.testing import served

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(40))
BLOB = b"\x00\x01\xffdragoman"
SDK, GO, JS, JAVA, OTHER = "python-httpx/0.28.1", "Go-http-client/1.1", "node", "Java-http-client/21", "mine/1"

received: list[bytes | None] = []


def make_agent() -> Agent:
    agent = Agent("files")

    async def gather(ctx: Context) -> AsyncIterator[Part]:
        received[:] = [file.raw for file in ctx.files]
        yield Part(raw=BLOB, media_type="application/octet-stream", filename="blob.bin")

    agent.skill(gather)
    return agent


@pytest.fixture(scope="module")
def files(wire: Any) -> Iterator[Any]:
    with served(make_agent()) as url:
        yield wire.at(url)


@pytest.fixture(scope="module")
def strict(wire: Any) -> Iterator[Any]:
    with served(make_agent(), strict_files=True) as url:
        yield wire.at(url)


def once(content: bytes) -> str:
    return base64.b64encode(content).decode()


def twice(content: bytes) -> str:
    return once(once(content).encode())


def body(*files: tuple[str, str]) -> dict[str, Any]:
    parts = [{"file": {"fileWithBytes": text, "mimeType": kind, "name": "a"}} for text, kind in files]
    return {"message": {"messageId": "m1", "role": "ROLE_USER", "content": [{"text": "take"}, *parts]}}


def send(wire: Any, caller: str, *files: tuple[str, str]) -> Any:
    return wire.rest("POST", "/v1/message:send", body(*files), **{"User-Agent": caller}).result["task"]


def get(wire: Any, caller: str, task: Any) -> Any:
    return wire.rest("GET", f"/v1/tasks/{task['id']}", **{"User-Agent": caller}).result


def artifact(task: Any) -> dict[str, Any]:
    return task["artifacts"][0]["parts"][0]["file"]


def sent_files(task: Any) -> list[str]:
    return [part["file"]["fileWithBytes"] for part in task["history"][0]["content"] if "file" in part]


KINDS = [(PNG, "image/png"), (BLOB, "application/octet-stream")]


@pytest.mark.parametrize(("caller", "encode"), [(SDK, twice), (GO, twice), (JS, once), (OTHER, once), (JAVA, once)])
@pytest.mark.parametrize(("content", "kind"), KINDS, ids=[kind for _, kind in KINDS])
def test_a_file_arrives_and_returns_as_the_caller_s_sdk_encodes_it(
    files: Any, caller: str, encode: Any, content: bytes, kind: str
) -> None:
    task = send(files, caller, (encode(content), kind))
    assert received == [content]
    for shown in (task, get(files, caller, task)):
        assert sent_files(shown) == [encode(content)]
        assert artifact(shown)["fileWithBytes"] == encode(BLOB)


def test_a_stream_carries_files_as_the_caller_s_sdk_encodes_them(files: Any) -> None:
    for caller, encode in ((SDK, twice), (JS, once)):
        options = {"json": body((encode(PNG), "image/png")), "headers": {"User-Agent": caller}}
        with files.reading("POST", "/v1/message:stream", **options) as reading:
            parts = [
                event.json["artifactUpdate"]["artifact"]["parts"] for event in reading if "artifactU" in event.data
            ]
        assert parts[0][0]["file"]["fileWithBytes"] == encode(BLOB)
        assert received == [PNG]


def test_a_caller_that_encodes_twice_gets_files_encoded_twice_later_too(files: Any) -> None:
    task = send(files, OTHER, (twice(PNG), "image/png"), (twice(BLOB), "application/octet-stream"))
    assert received == [PNG, BLOB]
    for shown in (task, get(files, OTHER, task)):
        assert sent_files(shown) == [twice(PNG), twice(BLOB)]
        assert artifact(shown)["fileWithBytes"] == twice(BLOB)
    assert artifact(get(files, JS, task))["fileWithBytes"] == once(BLOB)
    modern = files.rest("GET", f"/tasks/{task['id']}").result
    assert modern["artifacts"][0]["parts"][0]["raw"] == once(BLOB)


def test_the_name_of_a_file_is_left_out_where_strict_readers_do_not_know_it(files: Any) -> None:
    named = {caller: artifact(send(files, caller)).get("name") for caller in (SDK, GO, JS, OTHER, JAVA)}
    assert named == {SDK: "blob.bin", GO: "blob.bin", JS: "blob.bin", OTHER: "blob.bin", JAVA: None}


def test_a_strict_server_reads_and_writes_files_as_the_protocol_says(strict: Any) -> None:
    for caller in (SDK, OTHER, JAVA):
        task = send(strict, caller, (twice(PNG), "image/png"))
        assert received == [once(PNG).encode()]
        assert (artifact(task)["fileWithBytes"], artifact(task)["name"]) == (once(BLOB), "blob.bin")
