"""The agent of the cluster's nodes. What it does, it first writes to a file that outlives every process.

Nothing of Dragoman stands between an effect and its line, so that the file is what really happened. Times are those of
the machine's monotonic clock, which all processes share.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

from dragoman import Agent, Context
from dragoman.model.state import Role
from dragoman.outputs import Reply

agent = Agent("effects", description="Writes down what it does")
FILE = os.open(os.environ["EFFECTS_FILE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
WORDS = 12


def effect(kind: str, key: str, nonce: str, task: str, **more: Any) -> None:
    """Write a line, whole or not at all, and onto the disk."""
    line = {"kind": kind, "key": key, "nonce": nonce, "task": task, "pid": os.getpid(), "at": time.monotonic(), **more}
    os.write(FILE, json.dumps(line).encode() + b"\n")
    os.fsync(FILE)


@contextmanager
def running(ctx: Any, nonce: str) -> Iterator[None]:
    """The code of a skill is called for the message that began the task, or again for the last answer."""
    messages = [message for message in ctx.history if message.role is Role.USER]
    message = messages[-1].message_id
    effect("begin", "run", nonce, ctx.task_id, message=message)
    yield
    effect("end", "run", nonce, ctx.task_id, message=message)


async def charge(nonce: str, task: str, key: str, ms: int) -> str:
    """Something that must not happen twice."""
    effect("begin", key, nonce, task)
    await asyncio.sleep(ms / 1000)
    effect("end", key, nonce, task)
    return key


def charge_in_thread(nonce: str, task: str, key: str, ms: int) -> str:
    """The same, not on the event loop."""
    effect("begin", key, nonce, task)
    time.sleep(ms / 1000)
    effect("end", key, nonce, task)
    return key


@agent.skill
async def quick(ctx: Context, nonce: str, ms: int) -> str:
    """Do something."""
    with running(ctx, nonce):
        return nonce


@agent.skill
async def talk(ctx: Context, nonce: str, ms: int) -> AsyncIterator[str]:
    """Say something, word by word."""
    with running(ctx, nonce):
        for number in range(WORDS):
            yield f"{nonce}.{number} "
            await asyncio.sleep(ms / 1000 / WORDS)


@agent.skill
async def plan(ctx: Context, nonce: str, ms: int) -> str:
    """Ask in the middle, with an effect before the question and one after the answer."""
    with running(ctx, nonce):
        await ctx.once("reserve", charge, nonce, ctx.task_id, "reserve", ms // 4)
    answer = await ctx.ask("Really?")
    await ctx.once("book", charge_in_thread, nonce, ctx.task_id, "book", ms // 4)
    return f"{nonce}: {answer}"


@agent.skill
async def pay(ctx: Context, nonce: str, ms: int) -> str:
    """Have two effects, one after the other."""
    with running(ctx, nonce):
        await ctx.once("debit", charge_in_thread, nonce, ctx.task_id, "debit", ms // 4)
        await ctx.once("credit", charge, nonce, ctx.task_id, "credit", ms // 4)
    return nonce


@agent.skill(restart=True)
async def again(ctx: Context, nonce: str, ms: int) -> AsyncIterator[str]:
    """Start from the top when the node has died, but not with the effect."""
    with running(ctx, nonce):
        for number in range(WORDS):
            yield f"{nonce}.{number} "
            await asyncio.sleep(ms / 1000 / WORDS)
        await ctx.once("debit", charge, nonce, ctx.task_id, "debit", ms // 4)


@agent.skill(restart=True)
async def leave(ctx: Context, nonce: str, ms: int) -> AsyncIterator[str]:
    """Work until its process is stopped, end in the next one, and have an effect when it ends."""
    try:
        yield f"{os.getpid()} "
        if not ctx.restarted:
            await asyncio.Event().wait()
    finally:
        await ctx.once("leave", charge, nonce, ctx.task_id, "leave", 0)


@agent.skill
async def converse(ctx: Context, nonce: str, ms: int) -> str:
    """Remember what was said before in this conversation."""
    with running(ctx, nonce):
        await asyncio.sleep(ms / 4000)
        ctx.state["nonces"] = [*ctx.state.get("nonces", ()), nonce]
        return " ".join(ctx.state["nonces"])


@agent.skill
async def greet(ctx: Context, nonce: str, ms: int) -> Reply:
    """Answer without a task."""
    with running(ctx, nonce):
        return Reply(f"hello {nonce}")


@agent.skill
async def listen(ctx: Context, nonce: str, ms: int) -> str:
    """Work until a message says that it is over."""
    with running(ctx, nonce):
        await ctx.progress("listening")
        texts: list[str] = []
        async for message in ctx.messages():
            texts.append(message.text)
            if message.text == "over":
                break
        return f"{nonce}: {' '.join(texts)}"


@agent.skill
async def wait(ctx: Context, nonce: str, ms: int) -> str:
    """Take long enough to be canceled in the middle."""
    with running(ctx, nonce):
        await ctx.progress("waiting")
        await asyncio.sleep(3 + ms / 1000)
    return nonce
