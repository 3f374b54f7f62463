"""The templates of `dragoman init`: what each is about, what it needs, and its files."""

from __future__ import annotations

import os
import re
from importlib.resources import files
from importlib.util import find_spec
from string import Template as Text
from typing import NamedTuple

from dragoman.installation import install_line, portable_line

_SUFFIX = ".txt"
_FILES = {
    "agent.py": "the agent",
    "program.py": "the program",
    "stand_in.py": "a stand-in for a model, to run without an API key",
    "test_agent.py": "its tests",
    "conftest.py": "makes the tests use the stand-in",
    "dragoman.toml": "the settings of the server",
}
# Names of files that begin with a dot are stored without it.
_RENAMED = {"gitignore": ".gitignore"}
_WEATHER = "What is the weather in Lisbon?"
_CHAT = "dragoman chat"


class ModelKey(NamedTuple):
    """The model that a template uses when there is a key: the variable of the key, and a package it needs."""

    key: str
    module: str = ""
    package: str = ""


class Template(NamedTuple):
    """One template: its line in the help, what its README says, a message to try, and what it needs.

    `commands` are tried after `dragoman send`, `source` says in dragoman.toml what to serve, `module` is what the extra
    installs.
    """

    name: str
    help: str
    about: str
    text: str
    commands: tuple[str, ...]
    change: str
    source: str = 'target = "agent.py:agent"'
    extra: str = ""
    module: str = ""
    model: ModelKey | None = None

    def write(self, agent_name: str) -> dict[str, str]:
        """Return the texts of the files of a new agent, by name."""
        texts: dict[str, str] = {}
        for folder in (self.name, "shared"):
            for file in files("dragoman.cli.init").joinpath("templates", folder).iterdir():
                name = file.name.removesuffix(_SUFFIX)
                texts[_RENAMED.get(name, name)] = file.read_text(encoding="utf-8")
        values = self._values(agent_name, [name for name in _FILES if name in texts])
        return {name: Text(text).substitute(values) for name, text in sorted(texts.items())}

    def _values(self, agent_name: str, names: list[str]) -> dict[str, str]:
        packages = ("pytest", *([self.model.package] if self.model is not None and self.model.package else []))
        return {
            "name": agent_name,
            "identifier": identifier_of(agent_name),
            "source": self.source,
            "about": self.about,
            "files": "\n".join(f"| `{name}` | {_FILES[name]} |" for name in names),
            "calls": "\n".join((self.send_line, *self.commands)),
            "change": self.change,
            "key_note": ", and without an API key" if self.model is not None else "",
            "install": portable_line(*self._extras, packages=packages),
        }

    @property
    def send_line(self) -> str:
        """The command that tries the agent."""
        return f'dragoman send "{self.text}"'

    @property
    def _extras(self) -> tuple[str, ...]:
        return (self.extra,) if self.extra else ()

    def missing_line(self) -> str | None:
        """Return the command that installs what this environment lacks to run and test the agent; None if nothing.

        The environment has to be active.
        """
        extras = self._extras if self.module and not _is_installed(self.module) else ()
        packages = [] if _is_installed("pytest") else ["pytest"]
        if self.model is not None and self.model.module and os.environ.get(self.model.key):
            packages += [] if _is_installed(self.model.module) else [self.model.package]
        return install_line(*extras, packages=tuple(packages), is_active=True) if extras or packages else None


def identifier_of(name: str) -> str:
    """Return a name as an identifier, which agents of ADK need; `user` is taken there."""
    text = re.sub(r"\W", "_", name)
    return text if text.isidentifier() and text != "user" else f"agent_{text}"


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a package it lies in is missing
        return False


_MODEL_CHANGE = """\
`CHANGE THIS` marks the lines to change. With `{key}` in the environment, a real model answers{needs}. Without it,
`stand_in.py` calls the tool and repeats its result. The tests always use the stand-in."""


def _model_change(model: ModelKey) -> str:
    needs = f" (it needs `{model.package}`)" if model.package else ""
    return _MODEL_CHANGE.format(key=model.key, needs=needs)


_GOOGLE = ModelKey("GOOGLE_API_KEY")
_OPENAI = ModelKey("OPENAI_API_KEY")
_LANGCHAIN = ModelKey("OPENAI_API_KEY", "langchain_openai", "langchain-openai")
_PYDANTIC_AI = ModelKey("OPENAI_API_KEY", "openai", "pydantic-ai-slim[openai]")

TEMPLATES = {
    each.name: each
    for each in (
        Template(
            "tools",
            "Python functions as typed skills",
            "An agent with three skills: one for plain text, one with typed arguments, and one that asks a question, "
            "reports\nprogress and streams.",
            "How many words are these?",
            ("dragoman call convert amount=26.2 unit=miles", "dragoman call plan_trip city=Lisbon"),
            "Add functions with `@agent.skill`. Each one is a skill; its types and docstring go on the agent's card.",
        ),
        Template(
            "chat",
            "a chat that remembers the conversation",
            "An agent to chat with. It remembers the conversation and streams its answers.",
            "My name is Ada",
            (_CHAT,),
            "The function marked `CHANGE THIS` is a stand-in for a model. Call yours there.",
        ),
        Template(
            "mcp",
            "the tools of an MCP server",
            "The tools of an MCP server as an agent. In this example, the server is in the same file.",
            "pancakes",
            ("dragoman call weigh cups=2 of=flour",),
            "In the line marked `CHANGE THIS`, put the command or the URL of your MCP server.",
            extra="mcp",
            module="mcp",
        ),
        Template(
            "program",
            "any command-line program",
            "A command-line program as an agent. It reads the message from stdin and writes the answer to stdout.",
            "How many words are these?",
            ("dragoman send - < README.md",),
            "The line marked `CHANGE THIS` is the command. The program can be written in any language.",
        ),
        Template(
            "langgraph",
            "a LangGraph graph",
            "A LangGraph graph with one tool, as an agent.",
            _WEATHER,
            (_CHAT,),
            _model_change(_LANGCHAIN),
            source='langgraph = "agent.py:graph"\ndescription = "Knows the weather"',
            extra="langgraph",
            module="langgraph.pregel",
            model=_LANGCHAIN,
        ),
        Template(
            "adk",
            "a Google ADK agent",
            "A Google ADK agent with one tool.",
            _WEATHER,
            (_CHAT,),
            _model_change(_GOOGLE),
            source='target = "agent.py:root_agent"',
            extra="adk",
            module="google.adk",
            model=_GOOGLE,
        ),
        Template(
            "pydantic-ai",
            "a Pydantic AI agent",
            "A Pydantic AI agent with one tool.",
            _WEATHER,
            (_CHAT,),
            _model_change(_PYDANTIC_AI),
            extra="pydantic-ai",
            module="pydantic_ai",
            model=_PYDANTIC_AI,
        ),
        Template(
            "openai",
            "an OpenAI Agents SDK agent",
            "An OpenAI Agents SDK agent with one tool.",
            _WEATHER,
            (_CHAT,),
            _model_change(_OPENAI),
            extra="openai",
            module="agents",
            model=_OPENAI,
        ),
    )
}
