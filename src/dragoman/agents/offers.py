"""Builds the skills that an agent card shows for agents and tools of other frameworks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from dragoman.model.card import AgentSkill
from dragoman.model.error import Rejected
from dragoman.telemetry.audit import Audit

if TYPE_CHECKING:
    from dragoman.agents.functions.skill import Offer
    from dragoman.engine.execute.context import Context

GENERAL = "general"
_MAX_TAGS = 4
# Fewer tools may share a prefix by chance.
_MIN_TOOLS_FOR_PREFIX = 3
_PRODUCT_PREFIXES = ("corvid_", "mcp_")
_SEPARATOR = re.compile(r"[\W_]+")
# A run of capitals is one word, including a plural s; its last capital may begin the next word.
_WORD = re.compile(r"[A-Z]{2,}s(?![a-z])|[A-Z][A-Z0-9]*(?=[A-Z][a-z])|[A-Z]?[a-z0-9]+|[A-Z0-9]+")

_ACRONYMS = (
    *("A2A", "AI", "API", "AWS", "CLI", "CPU", "CRM", "CSS", "CSV", "DB", "DNS", "FTP", "GCP", "GIF", "GPU", "HTML"),
    *("HTTP", "HTTPS", "ID", "IP", "JPEG", "JPG", "JSON", "JWT", "LLM", "MCP", "MD5", "OCR", "OS", "PDF", "PNG", "PR"),
    *("QR", "RSS", "S3", "SDK", "SHA256", "SMS", "SMTP", "SQL", "SSH", "SSL", "SVG", "TCP", "TLS", "TTS", "UDP", "UI"),
    *("URI", "URL", "UTC", "UUID", "VM", "VPN", "XML", "YAML"),
)
_BRANDS = (
    *("GitHub", "GitLab", "OAuth", "GraphQL", "JavaScript", "TypeScript", "LinkedIn", "MongoDB", "MySQL", "OpenAI"),
    *("OpenAPI", "PayPal", "PostgreSQL", "PowerPoint", "SharePoint", "SQLite", "WhatsApp", "WordPress", "YouTube"),
    *("iOS", "macOS", "npm"),
)
_PLURALS = {f"{word.lower()}s": f"{word}s" for word in _ACRONYMS}
_SPELLINGS = _PLURALS | {word.lower(): word for word in (*_ACRONYMS, *_BRANDS)}
_JOINED_BRANDS = {brand.lower() for brand in _BRANDS}

_CATEGORIES = {
    "memory": "memory memories remember recall forget knowledge",
    "files": "file files filesystem directory directories path paths folder folders",
    "git": "git commit commits branch branches diff merge rebase repo repos repository repositories",
    "github": "github",
    "web": "web fetch http https url urls browse browser crawl scrape page website",
    "search": "search find query lookup",
    "messaging": "message messages send email emails mail mails chat notify notification notifications sms slack",
    "time": "time date dates timezone timezones schedule calendar clock reminder",
    "data": "sql database databases db table tables row rows column excel sheet sheets workbook csv chart charts",
    "documents": "document documents docx word paragraph paragraphs heading pdf text",
    "code": "code run execute exec shell command commands script terminal",
    "agents": "agent agents task tasks delegate",
    "math": "sum number numbers calculate calculator counter count math multiply divide subtract",
    "images": "image images media picture pictures photo screenshot",
    "weather": "weather forecast temperature",
    "places": "map maps place places location geocode directions",
    "money": "payment payments invoice invoices price currency refund",
}
_CATEGORY_BY_WORD = {word: name for name, words in _CATEGORIES.items() for word in words.split()}
# Ambiguous words that count only if no other word matches: "add" may be about numbers or paragraphs.
_CATEGORY_BY_WEAK_WORD = {"add": "math"}


def humanized(tool: str, prefix: str = "") -> str:
    """Return a tool's name as a title: `list_prs` becomes "List PRs". `prefix` is removed if something remains."""
    rest = tool
    for each in (prefix, *_PRODUCT_PREFIXES):
        if each and rest.startswith(each) and _SEPARATOR.sub("", rest[len(each) :]):
            rest = rest[len(each) :]
    return " ".join(_spell(word) for word in _words(rest)) or tool


def shared_prefix(names: Iterable[str]) -> str:
    """Return the prefix of whole words that all tool names share, such as `corvid_`; empty if there is none."""
    unique_names = set(names)
    if len(unique_names) < _MIN_TOOLS_FOR_PREFIX:
        return ""
    # In sorted order, whatever the first and the last name share is shared by all between them.
    first, last = min(unique_names), max(unique_names)
    length = next((at for at, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), len(first))
    separators = list(_SEPARATOR.finditer(first[:length]))
    if not separators:
        return ""
    prefix = first[: separators[-1].end()]
    # A separator alone is no word, and a tool named exactly like the prefix would lose its name.
    is_removable = _SEPARATOR.sub("", prefix) and all(_SEPARATOR.sub("", name[len(prefix) :]) for name in unique_names)
    return prefix if is_removable else ""


def categories(tool: str, description: str = "") -> tuple[str, ...]:
    """Return up to four category tags of a tool, from the words of its name, or else of its description."""
    for text in (tool, description):
        words = [word.lower() for word in _words(text)]
        names = [_CATEGORY_BY_WORD[word] for word in words if word in _CATEGORY_BY_WORD]
        names = names or [_CATEGORY_BY_WEAK_WORD[word] for word in words if word in _CATEGORY_BY_WEAK_WORD]
        if names:
            return tuple(dict.fromkeys(names))[:_MAX_TAGS]
    return (GENERAL,)


def _words(text: str) -> Iterator[str]:
    # In all-uppercase text, capitals do not separate words.
    text = text.lower() if text.isupper() else text
    current = ""
    for piece in _SEPARATOR.split(text):
        for word in _WORD.findall(piece) if piece.isascii() else [piece] if piece else []:
            if current and f"{current}{word}".lower() in _JOINED_BRANDS:
                current += word
                continue
            if current:
                yield current
            current = word
    if current:
        yield current


def _spell(word: str) -> str:
    spelling = _SPELLINGS.get(word.lower())
    if spelling is not None:
        return spelling
    # An unlisted word in capitals is probably an acronym, too.
    return word if len(word) > 1 and word.isupper() else word[:1].upper() + word[1:].lower()


def requested_skill(ctx: Context, *, by_skill: bool = False) -> tuple[str | None, dict[str, Any]]:
    """Return the skill that the first message of a task names, or None, and its arguments.

    The first data part `{"tool": …, "arguments": {…}}` decides. Without one, metadata `skillId` names the skill, and
    the first data object is the arguments. With `by_skill`, the key `skill` means the same as `tool`.
    """
    message = ctx.first_message
    first: dict[str, Any] | None = None
    for part in message.parts:
        if isinstance(part.data, dict):
            data = cast("dict[str, Any]", part.data)
            named = skill_in_data(data, by_skill=by_skill)
            if named is not None:
                return named
            first = data if first is None else first
    skill_id = ctx.first_metadata.get("skillId") or ctx.first_metadata.get("skill_id")
    return (skill_id if isinstance(skill_id, str) else None), dict(first or {})


def skill_in_data(data: dict[str, Any], *, by_skill: bool = False) -> tuple[str, dict[str, Any]] | None:
    """Return the skill that a data part names under `tool`, and its arguments; None if it names none.

    With `by_skill`, the key `skill` means the same.
    """
    name: Any = data.get("tool")
    if by_skill and not name:
        name = data.get("skill")
    if not isinstance(name, str):
        return None
    arguments: Any = data.get("arguments")
    return name, dict(cast("dict[str, Any]", arguments)) if isinstance(arguments, dict) else {}


def may_use(ctx: Context, offer: Offer) -> bool:
    """Return True if the caller has the permission that the skill requires."""
    return offer.permission is None or (ctx.user is not None and offer.permission in ctx.user.permissions)


def check_permission(ctx: Context, offer: Offer, name: str) -> None:
    """Check the caller's permission for a skill; a refusal is audited.

    Raises:
        Rejected: the caller may not use the skill.
    """
    if offer.permission is not None and not may_use(ctx, offer):
        Audit().record_denial(scheme="permission", reason=offer.id, user=ctx.user.id if ctx.user else "")
        raise Rejected(f"Unauthorized: {name}")


class NamedSkill(Struct, frozen=True):
    """A skill without an input schema: of a program, an executor or another framework's agent. Implements `Offer`."""

    id: str
    name: str
    description: str
    tags: tuple[str, ...] = ()
    default: bool = False
    permission: str | None = None

    def card(self) -> AgentSkill:
        return AgentSkill(self.id, self.name, self.description, self.tags)

    def sample(self) -> dict[str, Any]:
        """Return a text part: these skills have no input schema."""
        return {"text": "hello"}


def whole_agent(name: str, description: str, tags: Sequence[str] = ()) -> NamedSkill:
    """Return the one skill of an agent that does whatever it is asked, by its own name."""
    agent_id = re.sub(r"\W+", "-", name).strip("-").casefold() or "agent"
    return NamedSkill(agent_id, name, description or f"Talks to {name}", tuple(tags), default=True)


def offers_with_tools(name: str, description: str, tools: Iterable[tuple[str, str]]) -> tuple[NamedSkill, ...]:
    """Return one skill for the agent and one for each of its tools, given as names and descriptions."""
    agent = whole_agent(name, description, categories(name, description))
    others = (
        NamedSkill(f"{agent.id}-{tool}", humanized(tool), about or f"Tool: {tool}", categories(tool, about))
        for tool, about in tools
    )
    return (agent, *others)


def offers_from_tool_names(name: str, description: str, tools: Sequence[str] | None) -> tuple[NamedSkill, ...]:
    """Return one skill for each configured tool name, in order; without a list, one for the agent itself."""
    if tools is None:
        title = humanized(name)
        return (NamedSkill(name, title, description, categories(name, description), default=True),)
    return tuple(NamedSkill(tool, humanized(tool), f"Tool: {tool}", categories(tool)) for tool in tools)
