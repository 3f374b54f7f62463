"""An agent that does what its first message says, word by word, and notes outside of the system what it did."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from random import Random
from typing import Any

from cluster.audit import Effects

from dragoman import Agent, Context
from dragoman.clock import sleep
from dragoman.engine.ports.agent import Plan
from dragoman.model.card import AgentExtension
from dragoman.model.error import Failed
from dragoman.outputs import Ask, Replace, Reply
from dragoman.server.agent.adapter import EngineAgent

# Seconds that the words for waiting take. The longest is longer than a lease.
WAITS = {"turn": 0.0, "wait": 0.3, "slow": 2.0, "long": 9.0}
OUTPUTS = {"chunk": "word ", "data": {"a": [1, None]}, "replace": Replace("all")}
STEPS = (*WAITS, *OUTPUTS, "progress", "side", "ask", "ask", "auth", "once", "once", "listen", "fail")


def random_script(random: Random, steps: int = 6) -> str:
    """A script: whether the run may be repeated, or replies, and what it does."""
    kind = random.choice(("once", "once", "again", "reply"))
    if kind == "reply":
        return " ".join(("reply", *random.choices(("turn", "turn", "wait", "slow", "once"), k=random.randint(0, 2))))
    return " ".join((kind, *random.choices(STEPS, k=random.randint(0, steps))))


class ScriptedAgent:
    """An agent for one node. Its runs are serial within a context unless `parallel`."""

    extensions: tuple[AgentExtension, ...] = ()
    closing = "last"
    closing_message = False
    streams = True
    output_metadata = None
    foreign = None

    def __init__(self, name: str, *, parallel: bool, pinned: bool, node: object, effects: Effects) -> None:
        self.name = name
        self.parallel = parallel
        self.pinned = pinned
        self._node = node
        self._effects = effects

    def plan(self, ctx: Any) -> Plan:
        """The first word says how the message is handled."""
        kind = _script(ctx)[0]
        return Plan(self.run, replies=kind == "reply", restarts=kind == "again")

    async def canceled(self, ref: Any) -> None:
        """Nothing is left behind by a question."""

    async def run(self, ctx: Any) -> AsyncIterator[Any]:
        """Do one step after the other. A run after a pause goes on behind it."""
        kind, *steps = _script(ctx)
        run = self._effects.begin(self._node, ctx, self, restartable=kind == "again")
        try:
            pauses = len(ctx.answers)
            for index, step in enumerate(steps):
                if step in ("ask", "auth"):
                    pauses -= 1
                    if pauses < 0:
                        yield Ask("?", auth=True, url=self._keep(ctx)) if step == "auth" else Ask("?")
                        return
                elif pauses > 0:
                    continue
                elif step in OUTPUTS:
                    yield OUTPUTS[step]
                elif step == "once":
                    await self._once(ctx, run, f"{index}")
                else:
                    await self._do(step, ctx)
            if kind == "reply":
                yield Reply("hello")
        finally:
            self._effects.end(run)

    def _keep(self, ctx: Any) -> Callable[[str], None]:
        """The link of a login, which keeps the handle for whoever logs in."""
        return self._effects.handles.setdefault(ctx.task_id, []).append

    async def _once(self, ctx: Any, run: Any, key: str) -> None:
        async def effect() -> dict[str, Any]:
            self._effects.effect(run, key)
            await sleep(ctx.clock, 0.1)
            return {}

        await ctx.once(key, effect)

    async def _do(self, step: str, ctx: Any) -> None:
        if step == "progress":
            await ctx.progress("on")
        elif step == "side":
            await ctx.artifact("beside")
        elif step == "listen":
            await sleep(ctx.clock, 0.5)
            while ctx._live.follow_ups:
                ctx._live.follow_ups.pop()
        elif step == "fail":
            raise Failed("as the script says")
        else:
            await sleep(ctx.clock, WAITS[step])


def scripted_function(name: str, node: object, effects: Effects) -> EngineAgent:
    """The same as a function, which starts again from the top after each answer."""
    agent = Agent(name)

    @agent.skill
    async def work(text: str, ctx: Context) -> AsyncIterator[Any]:
        """Do one step after the other."""
        steps = text.split()[1:]
        run = effects.begin(node, ctx, engine_agent, restartable=False)
        try:
            for index, step in enumerate(steps):
                if step == "ask":
                    await ctx.ask(f"{index}?")
                elif step == "auth":
                    await ctx.ask_auth(f"{index}?", url=scripted._keep(ctx))
                elif step in OUTPUTS:
                    yield OUTPUTS[step]
                elif step == "once":
                    await scripted._once(ctx, run, f"{index}")
                else:
                    await scripted._do(step, ctx)
        finally:
            effects.end(run)

    engine_agent = EngineAgent(agent)
    scripted = ScriptedAgent(name, parallel=False, pinned=False, node=node, effects=effects)
    return engine_agent


def _script(ctx: Any) -> list[str]:
    return ctx.history[0].text.split()
