"""The agent that the servers of these tests run. What hangs here hangs until its process is killed or told to go on."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from dragoman import Agent, Context
from dragoman.sync import Context as SyncContext

agent = Agent("faulty", description="Runs in processes that are killed")
FOLDER = Path(os.environ["FAULT_FOLDER"])
if os.environ.get("FAULT_HASTY"):  # webhooks are tried again soon, so that seconds are a long outage
    from dragoman.webhooks import backoff, service

    backoff.FIRST_DELAY, backoff.MAX_DELAY, service.WAKE_POLL_INTERVAL = 0.05, 0.5, 0.2
if os.environ.get("FAULT_SHORT_STOP"):  # a server that is stopped is patient for a moment only
    from dragoman.engine.execute import runner
    from dragoman.server.listen import shutdown

    runner.CANCEL_GRACE_SECONDS, shutdown.FINAL_SECONDS = 0.2, 1.5


async def _forever() -> None:
    await asyncio.Event().wait()


async def _until_released(name: str) -> None:
    """Wait until the test opens the pipe of that name for writing."""
    await asyncio.to_thread((FOLDER / name).read_text)


@agent.skill
async def echo(text: str = "") -> str:
    """Say it again."""
    return text


@agent.skill
async def hang(words: int = 5) -> Any:
    """Say some words, and then nothing more."""
    for number in range(words):
        yield f"{number} "
    await _forever()


@agent.skill
async def idle(text: str = "") -> None:
    """Do nothing, for ever."""
    await _forever()


@agent.skill
async def pour(text: str = "") -> Any:
    """Talk as fast as possible, without end."""
    number = 0
    while True:
        number += 1
        yield f"{number} "


@agent.skill(restart=True)
async def again(ctx: Context) -> Any:
    """Hang in the first process, finish in the second."""
    first = not (FOLDER / "began").exists()
    (FOLDER / "began").touch()
    yield "one "
    await ctx.artifact({"first": first}, name="side")
    yield "two "
    if first:
        yield "lost"
        await _forever()
    yield "three"


@agent.skill
async def plan(ctx: Context, city: str = "Porto") -> Any:
    """Ask in the middle of a text."""
    yield f"{city}: "
    days = await ctx.ask("How many days?", type=int)
    yield f"{days} days"


@agent.skill
def plan_in_thread(ctx: SyncContext, city: str = "Porto") -> Any:
    """Ask in the middle of a text, in a thread."""
    yield f"{city}: "
    days = ctx.ask("How many days?", type=int)
    yield f"{days} days"


@agent.skill
async def finish(pipe: str) -> Any:
    """Begin, and end when the test says so through the pipe of that name."""
    yield "begun "
    await _until_released(pipe)
    yield "done"


@agent.skill
def block(ctx: SyncContext) -> None:
    """Block a thread for ever, deaf to everything."""
    ctx.progress("blocking")
    threading.Event().wait()


@agent.skill
async def block_once(ctx: Context) -> None:
    """Block in an effect."""
    await ctx.progress("blocking")
    await ctx.once("key", threading.Event().wait)


@agent.skill
async def block_to_thread(ctx: Context) -> None:
    """Block a thread of the loop's own."""
    await ctx.progress("blocking")
    await asyncio.to_thread(threading.Event().wait)


@agent.skill
async def block_own_thread(ctx: Context) -> None:
    """Block a thread that Python waits for when it ends."""
    await ctx.progress("blocking")
    await asyncio.get_running_loop().run_in_executor(ThreadPoolExecutor(1), threading.Event().wait)


async def _stubbornly() -> None:
    while True:
        with suppress(asyncio.CancelledError):
            await _forever()


@agent.skill
async def stubborn(ctx: Context) -> None:
    """Go on however often it is cancelled."""
    await ctx.progress("blocking")
    await _stubbornly()


@agent.skill
async def stubborn_task(ctx: Context) -> None:
    """Leave a task behind that goes on however often it is cancelled."""
    helper = asyncio.create_task(_stubbornly())
    await ctx.progress("blocking")
    await asyncio.wait([helper])


@agent.skill
async def block_loop(ctx: Context, how: str) -> None:
    """Block the event loop itself, once the test has opened the pipe `go`, and say so by the pipe `blocked`."""
    await ctx.progress("blocking")
    await _until_released("go")
    (FOLDER / "blocked").write_text("now")
    if how == "sleep":
        time.sleep(3600)  # noqa: ASYNC251 - that is what it is for
    else:
        re.match(r"(a+)+$", "a" * 60 + "b")


@agent.skill
async def leave(how: str) -> None:
    """Want to end the program."""
    if how == "task":
        await asyncio.create_task(_leave())
    elif how == "thread":
        await asyncio.to_thread(sys.exit, 3)
    await _leave()


async def _leave() -> None:
    raise KeyboardInterrupt


@agent.skill
async def halves(pipe: str) -> Any:
    """Say half of it, wait until the test says go through the pipe of that name, and say the other half."""
    for number in range(14):
        yield f"{number} "
    await _until_released(pipe)
    for number in range(14, 28):
        yield f"{number} "


@agent.skill
async def chatter(words: int) -> Any:
    """Say that many words as fast as possible."""
    for number in range(words):
        yield f"{number:>9} "


@agent.skill
async def slowly(words: int) -> Any:
    """Say that many words as a model does, with time between them."""
    for number in range(words):
        yield f"{number:>9} "
        await asyncio.sleep(0.01)
