"""An agent with effects: whatever it does, it first writes a line to a file, which is there after any kill.

Nothing of Dragoman stands between the effect and its line, so that the file is what really happened.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import Any

from dragoman import Agent, Context
from dragoman.model.state import Role
from dragoman.sync import Context as SyncContext
from dragoman.webhooks import backoff, service

agent = Agent("effects", description="Writes down what it does")
FILE = os.open(os.environ["EFFECTS_FILE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
# Webhooks are tried again soon: a receiver that was busy for a moment is no outage.
backoff.FIRST_DELAY, backoff.MAX_DELAY, service.WAKE_POLL_INTERVAL = 0.05, 0.5, 0.2


def effect(kind: str, nonce: str, task: str, **more: Any) -> None:
    """Write a line, whole or not at all."""
    line = {"kind": kind, "nonce": nonce, "task": task, "pid": os.getpid(), **more}
    os.write(FILE, json.dumps(line).encode() + b"\n")


def begun(ctx: Any, nonce: str) -> None:
    """The code of a skill was called: with the message that began the task, or again with the last answer."""
    user_messages = [message for message in ctx.history if message.role is Role.USER]
    effect("run", nonce, ctx.task_id, message=user_messages[-1].message_id)


def charge(nonce: str, task: str, key: str, ms: int) -> str:
    """Something that must not happen twice."""
    effect("begin", nonce, task, key=key)
    time.sleep(ms / 1000)
    effect("end", nonce, task, key=key)
    return key


async def charge_async(nonce: str, task: str, key: str, ms: int) -> str:
    """The same on the loop."""
    effect("begin", nonce, task, key=key)
    await asyncio.sleep(ms / 1000)
    effect("end", nonce, task, key=key)
    return key


@agent.skill
async def work(ctx: Context, nonce: str, ms: int) -> str:
    """Do something."""
    begun(ctx, nonce)
    await asyncio.sleep(ms / 1000)
    return nonce


@agent.skill
def work_in_thread(ctx: SyncContext, nonce: str, ms: int) -> str:
    """Do something in a thread."""
    begun(ctx, nonce)
    time.sleep(ms / 1000)
    return nonce


@agent.skill
async def talk(ctx: Context, nonce: str, ms: int) -> Any:
    """Say something, word by word."""
    begun(ctx, nonce)
    for number in range(12):
        yield f"{nonce} {number} "
        await asyncio.sleep(ms / 12_000)


@agent.skill
async def plan(ctx: Context, nonce: str, ms: int) -> str:
    """Ask in the middle, with an effect before the question and one after the answer."""
    begun(ctx, nonce)
    await ctx.once("reserve", charge_async, nonce, ctx.task_id, "reserve", ms)
    answer = await ctx.ask("Really?")
    await ctx.once("book", charge, nonce, ctx.task_id, "book", ms)
    return f"{nonce}: {answer}"


@agent.skill
async def pay(ctx: Context, nonce: str, ms: int) -> str:
    """Have two effects, one after the other."""
    begun(ctx, nonce)
    await ctx.once("debit", charge, nonce, ctx.task_id, "debit", ms)
    await ctx.once("credit", charge_async, nonce, ctx.task_id, "credit", ms)
    return nonce


@agent.skill(restart=True)
async def again(ctx: Context, nonce: str, ms: int) -> str:
    """Start from the top after a crash, but not with the effect."""
    begun(ctx, nonce)
    await asyncio.sleep(min(ms, 200) / 1000)
    await ctx.once("debit", charge, nonce, ctx.task_id, "debit", ms)
    return nonce


@agent.skill
async def wait(ctx: Context, nonce: str, ms: int) -> str:
    """Take long enough to be canceled in the middle."""
    begun(ctx, nonce)
    await ctx.progress("waiting")
    await asyncio.sleep(3 + ms / 1000)
    return nonce
