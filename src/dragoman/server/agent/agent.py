"""The `Agent` class and its constructors for remote agents, MCP servers, programs and other frameworks."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Unpack

from dragoman.agents.command import clean_name
from dragoman.agents.offers import whole_agent
from dragoman.agents.text import DEFAULT_HISTORY_BYTES
from dragoman.client.options import ProxyOptions, takes
from dragoman.model.error import ConfigError
from dragoman.server.agent.base import Backend, BareAgent
from dragoman.server.agent.frameworks import require
from dragoman.server.plugins import PROJECT, PluginOptions, program_options, set_options, with_plugin_options

if TYPE_CHECKING:
    from dragoman.agents.bridge import Bridge
    from dragoman.client.connection import Connection
    from dragoman.engine.execute.context import Context
    from dragoman.model.card import AgentCard
    from dragoman.server.config.keywords import SettingKeywords
    from dragoman.server.config.settings import Settings
    from dragoman.server.http.app import App

# The default time that a tool may be silent, in seconds.
TOOL_SECONDS = 600.0


class Agent(BareAgent):
    """An agent: a name, a description, and skills or a low-level `run`.

    `card` is merged last into the agent card. `extensions` are URIs, or AgentExtension objects where an extension
    is required. With `parallel`, several tasks of one conversation may run at once. With `restart`, `run` is called
    again after a crash instead of failing the task. With `replies`, `run` may yield a `Reply`, a bare message instead
    of a task. `closing` is how a streamed text ends: `"whole"` with an event that repeats it all, `"last"` with its
    last chunk, `"auto"` with the one that the client of the task's creator reads correctly. With `closing_message`, the
    status that completes a task, and its history, repeat the text of the answer, for clients that read nothing else;
    who polls the task sees no artifacts before.

    Raises:
        ConfigError: the name cannot be part of a URL or a file path, `closing` is none of these, or an extension cannot
            be read.
    """

    @classmethod
    @takes(ProxyOptions.__init__, ProxyOptions)
    def from_a2a(cls, *args: Any, **keywords: Any) -> Agent:
        """Create a proxy for another agent: tasks are stored here, streams resume, and every version can call it.

        `target` and the other options are those of `Client`. The remote card is fetched now.

        Raises:
            ConfigError: the target cannot be called, or an option is wrong.
            CannotConnect: the target cannot be reached.
            BadCard: it has no card, or one that cannot be read.
            AuthError: its card is not public, and the credentials are missing or wrong.
        """
        from dragoman.agents.remote.run import RemoteProxy, card_of_remote
        from dragoman.client.connect import connect
        from dragoman.client.sync import run_blocking
        from dragoman.clock import SystemClock
        from dragoman.engine.ports.agent import ForeignTasks

        options = ProxyOptions(*args, **keywords)
        # A new clock means a new card cache: the card is fetched even if another client has it cached.
        make = partial(connect, options, SystemClock())

        async def ask() -> AgentCard:
            connection = make()
            await connection.open()
            try:
                return await connection.card()
            finally:
                await connection.close()

        remote_card = run_blocking(ask())
        remote = RemoteProxy(make, retries=options.retries, limit=options.limit)
        name = options.name or remote_card.name.replace("/", "-")
        description = remote_card.description if options.description is None else options.description
        # On the card only where the remote agent lists no skills.
        offers = (whole_agent(name, description),)
        return cls(
            name,
            Backend(
                remote.run,
                restarts=True,
                offers=offers,
                canceled=remote.canceled,
                close=remote.close,
                foreign=ForeignTasks(str(options.target), remote.has_moved),
            ),
            description=description,
            version=options.version or remote_card.version,
            card={**card_of_remote(remote_card, name), **(options.card or {})},
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
        total_timeout: float = 0,
        headers: Mapping[str, str] | None = None,
        revision: str | None = None,
        name: str | None = None,
        description: str = "",
        version: str = "",
        card: Mapping[str, Any] | None = None,
    ) -> Agent:
        """Create an agent whose skills are the tools of MCP servers.

        A server is a command (split as a shell does, but not run by one), a list of arguments, a URL or an MCP server
        object. Servers are started or connected when the agent is opened. `env` are variables for the programs, or the
        names of variables to pass on; `headers` are sent to the URLs. `include` and `exclude` are names or patterns of
        tools; `permissions` maps names or patterns to the permission a caller needs (None: none). Plain text goes to
        `default_tool`. A tool that is silent for `timeout` seconds is stopped; the default is 600, and 0 is never. One
        that takes more than `total_timeout` seconds is stopped although it reports progress; by default it is not.
        `revision` is the protocol revision to speak, for servers whose tools ask as older ones do; the default is the
        newest that a server has.

        Raises:
            ConfigError: a server is none of these, there is no such revision, or dragoman[mcp] is not installed.
        """
        require("mcp", "mcp")
        from dragoman.agents.mcp_tools.bridge import McpTools
        from dragoman.agents.mcp_tools.source import parse_sources

        sources = parse_sources(servers, env, headers, revision)
        tools = McpTools(
            sources,
            include=include,
            exclude=exclude,
            permissions=permissions,
            default_tool=default_tool,
            timeout=TOOL_SECONDS if timeout is None else timeout,
            total_timeout=total_timeout,
            takes_server_name=name is None,
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
        """Create an agent that runs a program for every message, in the session and folder of the conversation.

        The command is split as a shell does, but not run by one. The text is passed on standard input, or in place of
        `{prompt}` in the command; an `interactive` program keeps running, and its silence is a question. Its output is
        the response: plain text, or with `jsonl` a JSON object per line; files it leaves in its folder are artifacts.
        A `profile` configures a well-known program. `env` are variables, or names of variables to pass on; `limits` and
        further options are those of the reference. `tools` are listed on the card.

        Raises:
            ConfigError: the command cannot be run, or an option is wrong.
        """
        from dragoman.agents.process.run import CommandSessions
        from dragoman.agents.process.spec import program_spec

        recipe = program_spec(command, input=input, output=output, profile=profile, cwd=cwd, env=env, limits=limits)
        title = name or recipe.name
        options, description = program_options(options), description or recipe.default_description
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
        """Create an agent from one of Google's ADK, or from its Runner. Each conversation is a session.

        Long-running tools, confirmations and credentials pause the task. Callers see tool calls and thoughts only with
        `show_tools` and `show_thoughts`. An agent that escalates completes the task; with `escalate="input"` the task
        waits for the caller instead.

        Raises:
            ConfigError: it is not an ADK agent or Runner, or dragoman[adk] is not installed.
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
        """Create an agent from a compiled LangGraph graph. Each conversation is a thread; interrupts pause the task.

        `to_input` builds the graph's input from the context of a message; the default is a list of messages. `context`
        is the value for its `context_schema`, or a function that builds it in the same way. For a graph without a
        checkpointer, up to `memory` bytes of messages are stored with the conversation.

        Raises:
            ConfigError: it is not a compiled graph, or dragoman[langgraph] is not installed.
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
        """Create an agent from one of Pydantic AI. Messages are stored with the conversation; deferred tools pause it.

        `deps` are the dependencies of its tools, or a function that builds them from the context of a message. At most
        `memory` bytes of messages are stored.

        Raises:
            ConfigError: it is not a Pydantic AI agent, dragoman[pydantic-ai] is not installed, or a tool needs approval
                and its `output_type` has no `DeferredToolRequests`.
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
        """Create an agent from one of the OpenAI Agents SDK. Items are stored with the conversation; approvals pause.

        `context` is the run's context object, or a function that builds it from the context of a message. At most
        `memory` bytes of items are stored; or `session` creates an SDK session from the conversation's id, which is
        closed after each message. `run_config` and `max_turns` are the SDK's; tracing is off.

        Raises:
            ConfigError: it is not such an agent, its sessions would not persist, or dragoman[openai] is not installed.
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
        task_store: object | None = None,
        push_config_store: object | None = None,
        push_sender: object | None = None,
        name: str | None = None,
        description: str | None = None,
        version: str = "0.1.0",
        card: Mapping[str, Any] | None = None,
    ) -> Agent:
        """Create an agent from an AgentExecutor written for a2a-sdk: an object with `execute` and `cancel`.

        Its tasks are also saved in `task_store`, its webhooks in `push_config_store`, and tasks are sent to webhooks by
        `push_sender`: objects with the methods of the interfaces in `dragoman.compat.executor`. Serving the agent
        raises ConfigError when one lacks them.

        Raises:
            ConfigError: the executor lacks these methods.
        """
        from dragoman.agents.executor import ExecutorRuns

        agent = cls._from_bridge(partial(ExecutorRuns, executor), name, description, version, card)
        agent.task_store, agent.push_config_store, agent.push_sender = task_store, push_config_store, push_sender
        return agent

    @classmethod
    def _from_bridge(
        cls,
        create_bridge: partial[Bridge],
        name: str | None,
        description: str | None,
        version: str,
        card: Mapping[str, Any] | None,
    ) -> Agent:
        try:
            bridge = create_bridge()
            name, own_description, offers = name or clean_name(bridge.name), bridge.description, tuple(bridge.offers())
        except (AttributeError, TypeError) as error:
            thing: Any = create_bridge.args[0]
            what = (
                f"the class {thing.__name__}"
                if isinstance(thing, type)
                else f"an object of type {type(thing).__name__}"
            )
            hint = ": call its compile() first" if hasattr(thing, "compile") else ""
            raise ConfigError(f"{what} cannot be served like this{hint}") from error
        backend = Backend(
            bridge.run,
            replies=getattr(bridge, "replies", False),
            offers=offers,
            output_metadata=getattr(bridge, "output_metadata", None),
            canceled=getattr(bridge, "canceled", None),
            close=bridge.close,
            foreign=getattr(bridge, "foreign", None),
        )
        card_description = own_description if description is None else description
        return cls(name, backend, description=card_description, version=version, card=card)

    # -- serving ---------------------------------------------------------------------------------------------------

    def app(self, **settings: Unpack[SettingKeywords]) -> App:
        """Return the agent as a plain ASGI app, to run under any server or to mount anywhere.

        Raises:
            ConfigError: a setting is wrong.
        """
        from dragoman.server.agent.server import Server

        return Server(self, **settings).app()

    def app_for(self, settings: Settings) -> App:
        """Return the ASGI app for loaded settings. Raises ConfigError."""
        from dragoman.server.build import build

        return build((self,), settings)

    def serve(self, **settings: Unpack[SettingKeywords]) -> None:
        """Listen and serve until stopped. Raises ConfigError when that is not possible."""
        from dragoman.server.agent.server import Server

        Server(self, **settings).serve()

    def in_process(self) -> Connection:
        """Return a connection for `Client(agent)`: the whole engine in memory, without a port or a file."""
        from dragoman.server.agent.in_process import connect

        return connect(self)
