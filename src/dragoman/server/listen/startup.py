"""What a server prints when it is ready: its agents, where they are, and a command to try."""

from __future__ import annotations

import json
import math
import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from dragoman.dialects.table import V1_0, VERSION_HEADER
from dragoman.net.postgres import is_postgres_url
from dragoman.server.config.store_url import parse_store, without_password
from dragoman.server.http.address import local_url
from dragoman.server.http.authentication import AuthSettings
from dragoman.server.http.pages import AGENTS, CARD
from dragoman.server.listen.trial import Trial, sample_part
from dragoman.telemetry.printable import one_line
from dragoman.telemetry.terminal import Style

if TYPE_CHECKING:
    from dragoman.agents.functions.skill import Offer
    from dragoman.server.config.settings import Limits, Settings

# Skills listed for an agent; the card has all of them.
MAX_SKILLS = 12
_WIDTH = 100
_MAX_NAME = 28
_SENTENCE = re.compile(r"(.+?[.!?…])(?=\s|$)")


class Startup(NamedTuple):
    """The lines of one server, which listens on `host` and `port`; with `curl`, they name curl commands to try.

    `grpc` is the address at which this machine reaches it over gRPC, if it does, `metrics` the URL of its metrics,
    `console` that of its console.
    """

    servable: Any
    settings: Settings
    host: str
    port: int
    curl: bool = False
    style: Style = Style(enabled=False)
    grpc: str = ""
    metrics: str = ""
    console: str = ""

    @property
    def agents(self) -> Sequence[Any]:
        """The agents that are served, the one at the root first."""
        return getattr(self.servable, "agents", None) or (self.servable,)

    @property
    def base(self) -> str:
        """The address at which this machine reaches the server."""
        return local_url(self.host, self.port, tls=self.settings.tls_cert is not None)

    def lines(self) -> Iterator[str]:
        """Yield the lines, free of control characters but those of the style."""
        settings, names = self.settings, one_line(self.servable.name)
        yield f"serving {self.style.bold(names)} at {self.base}"
        several = len(self.agents) > 1
        if not several:
            yield from self._agent(self.agents[0], "")
        if self.console:
            yield self._line("console", self.console)
        if self.grpc:
            yield self._line("grpc", self.grpc)
        if self.metrics:
            yield self._line("metrics", self.metrics)
        yield self._line("store", _store(settings.store))
        if settings.workers > 1:
            server = one_line(settings.node_name.rpartition("/")[0])
            yield self._line("workers", f"{settings.workers}, the nodes {server}/1 to {server}/{settings.workers}")
        elif is_postgres_url(settings.store):
            yield self._line("node", one_line(settings.node_name))
        if settings.reload:
            yield self._line("reload", "when a Python file or the settings file changes")
        if isinstance(settings.auth, AuthSettings):
            yield self._line("auth", ", ".join(settings.auth.names))
        if settings.limits.rate:
            yield self._line("rate", _rate(settings.limits))
        if several:
            yield self._line("agents", f"{self.base}{AGENTS.rstrip('/')}")
            for number, agent in enumerate(self.agents):
                yield ""
                yield from self._agent(agent, f"{AGENTS}{quote(agent.name, safe='')}" if number else "")
            yield ""
        else:
            yield from self._skills(self.agents[0])
        yield from self._curl_lines() if self.curl else self._trial_lines()

    def _agent(self, agent: Any, prefix: str) -> Iterator[str]:
        description = shorten(first_sentence(description_of(agent)), self._width - 2)
        name = self.style.bold(one_line(agent.name)) if len(self.agents) > 1 else ""
        if name or description:
            yield f"  {': '.join(filter(None, (name, description)))}"
        yield self._line("card", f"{self.base}{prefix}{CARD}")
        if len(self.agents) > 1:
            yield from self._skills(agent)

    def _skills(self, agent: Any) -> Iterator[str]:
        skills: Sequence[Offer] = getattr(agent, "skills", ())
        if len(skills) == 1 and skills[0].description in ("", description_of(agent)):
            return  # a program or another framework's agent: its one skill is the agent
        width = min(max((len(skill.id) for skill in skills), default=0), _MAX_NAME)
        for number, skill in enumerate(skills[:MAX_SKILLS]):
            name = shorten(one_line(skill.id), _MAX_NAME).ljust(width)
            about = shorten(first_sentence(skill.description), self._width - width - 12)
            yield self._line("" if number else "skills", f"{name}  {self.style.dim(about)}".rstrip())
        if len(skills) > MAX_SKILLS:
            yield self._line("", f"… and {len(skills) - MAX_SKILLS} more, all on the card")

    def _trial_lines(self) -> Iterator[str]:
        for number, command in enumerate(Trial(self.agents[0], self.settings, self.base).commands()):
            yield self._line("" if number else "try", self.style.bold(one_line(command)))

    def _curl_lines(self) -> Iterator[str]:
        message = {"message": {"messageId": "try-1", "role": "ROLE_USER", "parts": [sample_part(self.agents[0])]}}
        rpc = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": message}
        yield self._line("try", one_line(_curl(f"{self.base}/", rpc)))
        yield self._line("stream", one_line(_curl(f"{self.base}/message:stream", message, "-N")))

    @property
    def _width(self) -> int:
        return max(40, shutil.get_terminal_size((_WIDTH, 24)).columns) if self.style.enabled else _WIDTH

    def _line(self, label: str, text: str) -> str:
        return f"  {self.style.dim(label)}{' ' * (8 - len(label))}{text}"

    def warnings(self) -> list[str]:
        """Return what the user should know about the agents, their tasks and who may call."""
        warnings = [f"warning: {text}" for agent in self.agents if (text := _missing_skills(agent))]
        if self.settings.reload and self.settings.store == "memory:":
            warnings.append("warning: the tasks are in memory: every restart loses them")
        if is_postgres_url(self.settings.store) and (files := _open_files()) < self.settings.limits.streams:
            warnings.append(
                f"warning: only {files} files and connections may be open at once, and limits_streams is "
                f"{self.settings.limits.streams}: raise the limit, as with `ulimit -n 65536`, or lower limits_streams"
            )
        if self.settings.auth is not None:
            if not Trial(self.agents[0], self.settings, self.base).commands():
                text = "nobody gets in: users are kept in the store, and `memory:` has none. Use"
                warnings.append(f"warning: {text} --store {type(self.settings)().store}")
            return warnings
        if not ip_address(self.host).is_loopback:
            place = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
            warnings.append(f"warning: anyone who can reach {place} can use this agent: set auth, or bind 127.0.0.1")
        sessions = (getattr(getattr(agent, "backend", None), "sessions", None) for agent in self.agents)
        if any(each is not None and each.keeps_conversations for each in sessions):
            warnings.append(
                "note: without auth, all callers count as one: any of them can continue a conversation whose contextId "
                "they know"
            )
        return warnings


def _open_files() -> float:
    """How many files and connections this process may have open."""
    try:
        import resource
    except ImportError:  # not on Windows
        return math.inf
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return math.inf if limit == resource.RLIM_INFINITY else limit


def _store(url: str) -> str:
    if url == "memory:":
        return "memory: lost when the server stops"
    return without_password(url) if is_postgres_url(url) else str(parse_store(url))


def _missing_skills(agent: Any) -> str | None:
    """Return what to do about an agent that cannot do anything; None when it has skills."""
    if getattr(agent, "skills", True):  # something else that can be served has no skills to speak of
        return None
    name = one_line(agent.name)
    if getattr(agent, "tools", None) is not None:
        return (
            f"`{name}` has no tools, so its tasks fail: its MCP servers offer none, or include and exclude leave none"
        )
    return f"`{name}` has no skills, so its tasks fail: put `@agent.skill` above a function"


def description_of(agent: Any) -> str:
    """Return the description of an agent: its own, else that of its MCP server."""
    tools = getattr(agent, "tools", None)
    return getattr(agent, "description", "") or ("" if tools is None else tools.about.description)


def first_sentence(text: str) -> str:
    """Return the first sentence of a text, as one line without control characters."""
    line = one_line(" ".join(text.partition("\n\n")[0].split()))
    found = _SENTENCE.match(line)
    return found[1] if found else line


def shorten(text: str, width: int) -> str:
    """Return a line of at most `width` characters."""
    return text if len(text) <= width else f"{text[: width - 1].rstrip()}…"


def _rate(limits: Limits) -> str:
    burst = f", {limits.burst} at once" if limits.burst else ""
    return f"{limits.rate:g} requests a second for each caller{burst}; --limits-rate 0 lifts the limit"


def _curl(url: str, body: dict[str, Any], *options: str) -> str:
    headers = ["-H", "Content-Type: application/json", "-H", f"{VERSION_HEADER}: {V1_0}"]
    return shlex.join(["curl", *options, url, *headers, "-d", json.dumps(body, ensure_ascii=False)])
