"""The agent, as its author writes it, and the ready-made ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Unpack

from dragoman.agents.command import clean_name
from dragoman.agents.text import DEFAULT_HISTORY_BYTES
from dragoman.model.error import ConfigError
from dragoman.server.agent.base import Backend, BareAgent
from dragoman.server.agent.frameworks import require
from dragoman.server.plugins import PROJECT, PluginOptions, program_options, set_options, with_plugin_options

if TYPE_CHECKING:
    from dragoman.agents.bridge import Bridge
    from dragoman.client.connection import Connection
    from dragoman.engine.execute.context import Context
    from dragoman.model.card import AgentCard
    from dragoman.server.config.settings import Settings
    from dragoman.server.http.app import App

# How long a tool may be silent, unless its owner says otherwise.
TOOL_SECONDS = 600.0


class Agent(BareAgent):
    """An agent: a name, a description, and skills or a low-level `run`.

    `card` is merged last into the agent card. `extensions` are URIs, or AgentExtension objects where an extension
    is required. With `parallel`, several tasks of one conversation may run at once. With `restart`, `run` is called
    again after a crash instead of failing the task.

    Raises:
        ConfigError: the name is empty or an extension cannot be read.
    """

    @classmethod
    def from_a2a(
        cls,
        target: object,
        *,
        name: str | None = None,
        description: str | None = None,
        version: str | None = None,
        card: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Agent:
        """An agent in front of another: its tasks are kept here, its streams resume, every version can call it.

        `target` and `options` are those of `Client`. Its card is asked for now.

        Raises:
            ConfigError: the target cannot be called, or an option is wrong.
            CannotConnect: nobody answers.
            BadCard: it has no card, or one that cannot be read.
        """
        from dragoman.agents.remote.run import RemoteProxy, card_of_remote
        from dragoman.client.connect import connect
        from dragoman.client.connection import DEFAULT_LIMIT
        from dragoman.client.sync import run_blocking
        from dragoman.clock import SystemClock

        # With a clock of its own it also has the card from nobody else, who may have asked minutes ago.
        make = partial(connect, target, clock=SystemClock(), **options)

        async def ask() -> AgentCard:
            connection = make()
            await connection.open()
            try:
                return await connection.card()
            finally:
                await connection.close()

        remote_card = run_blocking(ask())
        remote = RemoteProxy(make, retries=options.get("retries", 5), limit=options.get("limit", DEFAULT_LIMIT))
        return cls(
            name or remote_card.name.replace("/", "-"),
            Backend(remote.run, restarts=True, canceled=remote.canceled, close=remote.close),
            description=remote_card.description if description is None else description,
            version=version or remote_card.version,
            card={**card_of_remote(remote_card), **(card or {})},
        )

    @classmethod
    def from_mcp(
        cls,
        *servers: object,
        env: Mapping[str, str] | Sequence[str] | None = None,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] | None = None,
        permissions: Mapping[str, str | None] | None = None,
        default_tool: str | None = None,
        timeout: float | None = None,
        headers: Mapping[str, str] | None = None,
        name: str | None = None,
        description: str = "",
        version: str = "",
        card: Mapping[str, Any] | None = None,
    ) -> Agent:
        """An agent whose skills are the tools of MCP servers.

        A server is a command (split like a shell does, never run by one), a list of arguments, a URL or an MCP server
        object. They are started or reached when the agent is opened. `env` are variables for the programs, or names
        of those to pass on, and `headers` go to the URLs. `include` and `exclude` are names or patterns, `permissions`
        say what a caller needs for a name or pattern (None: nothing). A plain text goes to `default_tool`. A tool that
        is silent for `timeout` seconds is stopped; by default that is 600, and 0 is never.

        Raises:
            ConfigError: a server cannot be one, or dragoman[mcp] is not installed.
        """
        require("mcp", "mcp")
        from dragoman.agents.mcp_tools.bridge import McpTools
        from dragoman.agents.mcp_tools.source import parse_sources

        sources = parse_sources(servers, env, headers)
        tools = McpTools(
            sources,
            include=include,
            exclude=exclude,
            permissions=permissions,
            default_tool=default_tool,
            timeout=TOOL_SECONDS if timeout is None else timeout,
        )
        return cls(
            name or (sources[0].name if len(sources) == 1 else "tools"),
            Backend(tools.run, tools=tools, canceled=tools.canceled, close=tools.close),
            description=description,
            version=version,
            card=card,
            parallel=True,
        )

    @classmethod
    @with_plugin_options
    def from_command(
        cls,
        command: str | Sequence[str] | None = None,
        *,
        input: Literal["stdin", "interactive"] = "stdin",
        output: Literal["text", "jsonl"] = "text",
        profile: str | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | Sequence[str] | None = None,
        limits: Mapping[str, Any] | None = None,
        tools: Sequence[str] | None = None,
        name: str | None = None,
        description: str = "",
        version: str = "0.1.0",
        card: Mapping[str, Any] | None = None,
        **options: Unpack[PluginOptions],
    ) -> Agent:
        """An agent that runs a program for every message, in a session and a folder of its conversation.

        The command is split like a shell does, and never run by one. The text comes on standard input, or where the
        command says `{prompt}`; an `interactive` program stays open, and its silence is a question. What it writes is
        the answer: plain text, or with `jsonl` a JSON object per line; files it leaves in its folder are artifacts.
        A `profile` knows a well-known program. `env` are variables, or names of those to pass on; `limits` are those
        of the reference, as are further options. `tools` stand on the card.

        Raises:
            ConfigError: the command cannot be one, or an option is wrong.
        """
        from dragoman.agents.process.run import CommandSessions
        from dragoman.agents.process.spec import program_spec

        recipe = program_spec(command, input=input, output=output, profile=profile, cwd=cwd, env=env, limits=limits)
        title = name or recipe.name
        options, description = program_options(options), description or recipe.about
        project = options.get(PROJECT) or None
        sessions = CommandSessions(recipe, agent_id=title, project_id=project, description=description, tools=tools)
        backend = Backend(
            sessions.run,
            offers=sessions.offers,
            prepare=sessions.prepare,
            canceled=sessions.canceled,
            close=sessions.close,
            sessions=sessions,
        )
        agent = cls(title, backend, description=description, version=version, card=card)
        set_options(agent, options)
        agent.tool_names = None if tools is None else tuple(tools)
        return agent

    # -- agents of other frameworks --------------------------------------------------------------------------------

    @classmethod
    def from_adk(
        cls,
        agent: Any,
        *,
        show_tools: bool = False,
        show_thoughts: bool = False,
        escalate: Literal["complete", "input"] = "complete",
        name: str | None = None,
        description: str | None = None,
        version: str = "0.1.0",
        card: Mapping[str, Any] | None = None,
    ) -> Agent:
        """An agent of Google's ADK, or its Runner. Its sessions are the conversations.

        Long-running tools, confirmations and credentials pause the task. Tool calls and thoughts are told to callers
        only with `show_tools` and `show_thoughts`. An agent that escalates has ended its work; with `escalate="input"`
        it waits for the caller instead.

        Raises:
            ConfigError: it is none, or dragoman[adk] is not installed.
        """
        require("google.adk", "adk")
        from dragoman.agents.adk.run import AdkRuns

        make: partial[Bridge] = partial(
            AdkRuns, agent, show_tools=show_tools, show_thoughts=show_thoughts, escalate=escalate
        )
        return cls._from_bridge(make, name, description, version, card)

    @classmethod
    def from_langgraph(
        cls,
        graph: Any,
        *,
        to_input: Callable[[Context], Any] | None = None,
        context: Any = None,
        memory: int = DEFAULT_HISTORY_BYTES,
        name: str | None = None,
        description: str | None = None,
        version: str = "0.1.0",
        card: Mapping[str, Any] | None = None,
    ) -> Agent:
        """A compiled LangGraph graph. Its checkpointer's threads are the conversations, interrupts pause the task.

        `to_input` makes the graph's input from the context of a message; by default that is a list of messages.
        `context` is what its `context_schema` wants, or a function that makes it in the same way. Of a graph without a
        checkpointer, `memory` bytes of messages are kept with the conversation.

        Raises:
            ConfigError: it is none, or dragoman[langgraph] is not installed.
        """
        require("langgraph", "langgraph")
        from dragoman.agents.langgraph.run import LangGraphRuns

        make: partial[Bridge] = partial(LangGraphRuns, graph, to_input=to_input, context=context, memory=memory)
        return cls._from_bridge(make, name, description, version, card)

    @classmethod
    def from_pydantic_ai(
        cls,
        agent: Any,
        *,
        deps: Any = None,
        memory: int = DEFAULT_HISTORY_BYTES,
        name: str | None = None,
        description: str | None = None,
        version: str = "0.1.0",
        card: Mapping[str, Any] | None = None,
    ) -> Agent:
        """An agent of Pydantic AI. Its messages are kept with the conversation, deferred tools pause the task.

        `deps` is what its tools depend on, or a function that makes it from the context of a message. At most `memory`
        bytes of messages are kept.

        Raises:
            ConfigError: it is none, or dragoman[pydantic-ai] is not installed.
        """
        require("pydantic_ai", "pydantic-ai")
        from dragoman.agents.pydantic_ai import PydanticAiRuns

        make: partial[Bridge] = partial(PydanticAiRuns, agent, deps=deps, memory=memory)
        return cls._from_bridge(make, name, description, version, card)

    @classmethod
    def from_openai(
        cls,
        agent: Any,
        *,
        context: Any = None,
        session: Callable[[str], Any] | None = None,
        run_config: Any = None,
        max_turns: int | None = None,
        memory: int = DEFAULT_HISTORY_BYTES,
        name: str | None = None,
        description: str | None = None,
        version: str = "0.1.0",
        card: Mapping[str, Any] | None = None,
    ) -> Agent:
        """An agent of the OpenAI Agents SDK. Its items are kept with the conversation, approvals pause the task.

        `context` is the run's context object, or a function that makes it from the context of a message. At most
        `memory` bytes of items are kept; or `session` makes a session of the SDK from the conversation's id, which is
        closed after each message. `run_config` and `max_turns` are the SDK's; nothing is traced.

        Raises:
            ConfigError: it is none, its sessions would forget, or dragoman[openai] is not installed.
        """
        require("agents", "openai")
        from dragoman.agents.openai_agents import OpenAiRuns

        make: partial[Bridge] = partial(
            OpenAiRuns,
            agent,
            context=context,
            session=session,
            run_config=run_config,
            max_turns=max_turns,
            memory=memory,
        )
        return cls._from_bridge(make, name, description, version, card)

    @classmethod
    def from_executor(
        cls,
        executor: object,
        *,
        name: str | None = None,
        description: str | None = None,
        version: str = "0.1.0",
        card: Mapping[str, Any] | None = None,
    ) -> Agent:
        """An AgentExecutor as it is written for a2a-sdk, known by its `execute` and `cancel`.

        Raises:
            ConfigError: it has neither.
        """
        from dragoman.agents.executor import ExecutorRuns

        return cls._from_bridge(partial(ExecutorRuns, executor), name, description, version, card)

    @classmethod
    def _from_bridge(
        cls,
        make: partial[Bridge],
        name: str | None,
        description: str | None,
        version: str,
        card: Mapping[str, Any] | None,
    ) -> Agent:
        try:
            bridge = make()
            name, own_description, offers = name or clean_name(bridge.name), bridge.description, tuple(bridge.offers())
        except (AttributeError, TypeError) as error:
            thing: Any = make.args[0]
            what = (
                f"the class {thing.__name__}"
                if isinstance(thing, type)
                else f"an object of type {type(thing).__name__}"
            )
            hint = ": call its compile() first" if hasattr(thing, "compile") else ""
            raise ConfigError(f"{what} cannot be served like this{hint}") from error
        backend = Backend(
            bridge.run,
            offers=offers,
            output_metadata=getattr(bridge, "output_metadata", None),
            canceled=getattr(bridge, "canceled", None),
            close=bridge.close,
        )
        card_description = own_description if description is None else description
        return cls(name, backend, description=card_description, version=version, card=card)

    # -- serving ---------------------------------------------------------------------------------------------------

    def app(self, **settings: Any) -> App:
        """The agent as a plain ASGI callable, to run under any server or to mount anywhere.

        Raises:
            ConfigError: a setting is wrong.
        """
        from dragoman.server.agent.server import Server

        return Server(self, **settings).app()

    def app_for(self, settings: Settings) -> App:
        """The ASGI callable with settings that are read already. Raises ConfigError."""
        from dragoman.server.build import build

        return build((self,), settings)

    def serve(self, **settings: Any) -> None:
        """Listen and answer until stopped. Raises ConfigError when that is not possible."""
        from dragoman.server.agent.server import Server

        Server(self, **settings).serve()

    def in_process(self) -> Connection:
        """A connection for `Client(agent)`: the whole engine in memory, no port and no file."""
        from dragoman.server.agent.in_process import connect

        return connect(self)
