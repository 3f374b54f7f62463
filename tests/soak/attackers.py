"""Callers who mean harm, in a process of their own: `attackers.py PORT KEY SECONDS [ATTACK ...]`. It ends by itself.

Each attack keeps to a pace, so that the machine itself is not what gives in. What they were answered is printed at the
end, as JSON: how often each attack got which status.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from uuid import uuid4

PORT, KEY, SECONDS, CHOSEN = int(sys.argv[1]), sys.argv[2], float(sys.argv[3]), sys.argv[4:]
POLITE = "/agents/polite"
COUNTS: dict[str, Counter[str]] = {}


async def connected(source: str = "127.0.0.1") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", PORT, local_addr=(source, 0))


def body_of(tool: str, *parts: str) -> bytes:
    metadata = json.dumps({"skillId": tool})
    message = f'{{"messageId":"{uuid4()}","role":"ROLE_USER","parts":[{",".join(parts)}],"metadata":{metadata}}}'
    return f'{{"message":{message},"configuration":{{"returnImmediately":true}}}}'.encode()


def post(path: str, body: bytes, *headers: str) -> bytes:
    lines = (
        f"POST {path} HTTP/1.1",
        "Host: 127.0.0.1",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *(headers or (f"Authorization: Bearer {KEY}",)),
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def asked(request: bytes, source: str = "127.0.0.1") -> str:
    reader, writer = await connected(source)
    try:
        writer.write(request)
        await writer.drain()
        async with asyncio.timeout(20):
            return (await reader.readline()).decode().partition(" ")[2][:3] or "closed"
    finally:
        writer.close()


async def endless_headers() -> str:
    _, writer = await connected()
    try:
        writer.write(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        for number in range(400):  # 4 MB, and then the next connection
            writer.write(f"X-{number}: ".encode() + b"x" * 10_000 + b"\r\n")
            await writer.drain()
            await asyncio.sleep(0.002)
        return "taken"
    finally:
        writer.close()


async def many_headers() -> str:
    return await asked(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"a: b\r\n" * 20_000 + b"\r\n")


async def large_message() -> str:
    return await asked(post(f"{POLITE}/message:send", body_of("hold", json.dumps({"text": "x" * 9_000_000}))))


async def too_large() -> str:
    return await asked(post(f"{POLITE}/message:send", body_of("hold", json.dumps({"text": "x" * 20_000_000}))))


async def tiny_values() -> str:
    return await asked(post(f"{POLITE}/message:send", body_of("hold", '{"data":[' + "1," * 4_700_000 + "1]}")))


async def many_parts() -> str:
    return await asked(post(f"{POLITE}/message:send", body_of("hold", *['{"text":""}'] * 100_000)))


async def slow_reader() -> str:
    reader, writer = await connected()
    try:
        writer.write(post(f"{POLITE}/message:stream", body_of("chatter", '{"text":"go"}')))
        for _ in range(100):
            if not await reader.read(1000):
                break
            await asyncio.sleep(0.1)
        return "read"
    finally:
        writer.close()


async def slow_sender() -> str:
    _, writer = await connected()
    try:
        for byte in b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Le":
            writer.write(bytes((byte,)))
            await asyncio.sleep(0.2)
        return "taken"
    finally:
        writer.close()


async def wrong_password() -> str:
    number = uuid4().int
    name = "vera" if number % 2 else f"nobody-{number % 10_000}"
    credentials = base64.b64encode(f"{name}:wrong".encode()).decode()
    source = f"127.0.1.{number % 200 + 1}"
    return await asked(
        post(f"{POLITE}/message:send", body_of("echo", '{"text":"x"}'), f"Authorization: Basic {credentials}"), source
    )


async def hostile_tool() -> str:
    name = ("pattern", "huge", "deep", "nan", "flood", "silent", "nested")[uuid4().int % 7]
    arguments = {"text": "a" * 60 + "b"} if name == "pattern" else {}
    part = json.dumps({"data": {"tool": name, "arguments": arguments}})
    return await asked(post("/agents/tools/message:send", body_of(name, part)))


async def again(attack: Callable[[], Awaitable[str]], pause: float, until: float) -> None:
    counts = COUNTS.setdefault(attack.__name__, Counter())
    while asyncio.get_running_loop().time() < until:
        try:
            counts[await attack()] += 1
        except (OSError, TimeoutError) as error:
            counts[type(error).__name__] += 1
        await asyncio.sleep(pause)


async def main() -> None:
    until = asyncio.get_running_loop().time() + SECONDS
    attacks: list[tuple[Callable[[], Awaitable[str]], float, int]] = [
        (endless_headers, 0.2, 2),
        (many_headers, 1.0, 1),
        # Of the messages that are accepted each is written twice, and twice again by a checkpoint: more than a few
        # megabytes a second measure the disk, and no longer the server.
        (large_message, 4.0, 1),
        (too_large, 0.3, 2),
        (tiny_values, 3.0, 1),
        (many_parts, 3.0, 1),
        (slow_reader, 0.1, 40),
        (slow_sender, 0.1, 20),
        (wrong_password, 0.1, 4),
        (hostile_tool, 0.5, 1),
    ]
    async with asyncio.TaskGroup() as group:
        for attack, pause, callers in attacks:
            for _ in range(callers if attack.__name__ in CHOSEN or not CHOSEN else 0):
                group.create_task(again(attack, pause, until))
    print(json.dumps(COUNTS))


if __name__ == "__main__":
    asyncio.run(main())
