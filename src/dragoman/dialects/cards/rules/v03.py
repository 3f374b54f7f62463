"""What A2A 0.3, 0.2 and 0.1 ask of a card."""

from __future__ import annotations

from typing import Literal

from dragoman.dialects.cards.rules.addresses import address_of, check_site, is_web
from dragoman.dialects.cards.rules.security import REQUIREMENTS_03, check_declared, schemes_03, signatures
from dragoman.dialects.cards.rules.shape import (
    Field,
    Json,
    Report,
    Several,
    Shape,
    as_list,
    as_object,
    check_unique,
    field_of,
    quoted,
)
from dragoman.dialects.cards.rules.values import (
    ADDRESS,
    CORE_BINDINGS,
    FLAG,
    LINK,
    MEDIA_TYPES,
    OBJECT,
    RELEASE,
    STRING,
    TEXT,
    TRANSPORT,
    URI,
    WORDS,
)

Older = Literal["0.3", "0.2", "0.1"]

# 0.3 numbers its sections; of the versions before it the schema is what there is to name.
_SECTIONS = {
    "AgentCard": "5.5",
    "AgentProvider": "5.5.1",
    "AgentCapabilities": "5.5.2",
    "AgentExtension": "5.5.2.1",
    "SecurityScheme": "5.5.3",
    "AgentSkill": "5.5.4",
    "AgentInterface": "5.5.5",
    "AgentCardSignature": "5.5.6",
}
_ENCRYPTED = {
    "0.3": "A2A 0.3, 4.1: agents in production are reached over https",
    "0.2": "Advice: agents in production are reached over https",
    "0.1": "Advice: agents in production are reached over https",
}


def _where(version: Older, name: str) -> str:
    return f"A2A 0.3, {_SECTIONS[name]}" if version == "0.3" else f"A2A {version} schema, {name}"


def _table(version: Literal["0.3", "0.2"]) -> Shape:
    def where(name: str) -> str:
        return _where(version, name)

    new = version == "0.3"
    extension = Shape(
        "an extension",
        where("AgentExtension"),
        (Field("uri", URI, "error"), Field("description", STRING), Field("required", FLAG), Field("params", OBJECT)),
    )
    capabilities = Shape(
        "capabilities",
        where("AgentCapabilities"),
        (
            Field("streaming", FLAG),
            Field("pushNotifications", FLAG),
            Field("stateTransitionHistory", FLAG),
            Field("extensions", Several("a list of extensions", extension)),
        ),
    )
    skill = Shape(
        "a skill",
        where("AgentSkill"),
        (
            Field("id", TEXT, "error"),
            Field("name", TEXT, "error"),
            Field("description", TEXT, "error"),
            Field("tags", WORDS, "error"),
            Field("examples", WORDS),
            Field("inputModes", MEDIA_TYPES),
            Field("outputModes", MEDIA_TYPES),
            *((Field("security", REQUIREMENTS_03),) if new else ()),
        ),
    )
    interface = Shape(
        "an interface",
        where("AgentInterface"),
        (Field("url", ADDRESS, "error"), Field("transport", TRANSPORT, "error")),
    )
    provider = Shape(
        "a provider", where("AgentProvider"), (Field("organization", TEXT, "error"), Field("url", LINK, "error"))
    )
    # The text of 0.3 requires preferredTransport, its schema has JSONRPC for a card without it.
    transport = Field("preferredTransport", TRANSPORT, "warning" if new else None)
    if new:
        transport = transport._replace(
            says="an agent card has preferredTransport, JSONRPC, GRPC or HTTP+JSON; readers take JSONRPC without it",
            where="A2A 0.3, 5.6.1",
        )
    return Shape(
        "an agent card",
        where("AgentCard"),
        (
            # 0.2.5 brought protocolVersion.
            Field("protocolVersion", RELEASE, "error" if new else "warning"),
            Field("name", TEXT, "error"),
            Field("description", TEXT, "error"),
            Field("url", ADDRESS, "error"),
            transport,
            Field("additionalInterfaces", Several("a list of interfaces", interface)),
            Field("provider", provider),
            Field("iconUrl", LINK),
            Field("version", TEXT, "error"),
            Field("documentationUrl", LINK),
            Field("capabilities", capabilities, "error", "an agent card has capabilities, an object"),
            Field("securitySchemes", schemes_03(where("SecurityScheme"), version)),
            Field("security", REQUIREMENTS_03),
            Field("defaultInputModes", MEDIA_TYPES, "error"),
            Field("defaultOutputModes", MEDIA_TYPES, "error"),
            Field("skills", Several("a list of skills", skill), "error"),
            Field("supportsAuthenticatedExtendedCard", FLAG),
            *((Field("signatures", signatures(where("AgentCardSignature"), key=False)),) if new else ()),
        ),
    )


def _table_01() -> Shape:
    def where(name: str) -> str:
        return _where("0.1", name)

    capabilities = Shape(
        "capabilities",
        where("AgentCapabilities"),
        (Field("streaming", FLAG), Field("pushNotifications", FLAG), Field("stateTransitionHistory", FLAG)),
    )
    skill = Shape(
        "a skill",
        where("AgentSkill"),
        (
            Field("id", TEXT, "error"),
            Field("name", TEXT, "error"),
            Field(
                "description",
                STRING,
                "warning",
                "a skill may do without description, but callers choose a skill by it",
            ),
            Field("tags", WORDS),
            Field("examples", WORDS),
            Field("inputModes", WORDS),
            Field("outputModes", WORDS),
        ),
    )
    provider = Shape("a provider", where("AgentProvider"), (Field("organization", TEXT, "error"), Field("url", LINK)))
    authentication = Shape(
        "authentication",
        "A2A 0.1 schema, AgentAuthentication",
        (Field("schemes", WORDS, "error"), Field("credentials", STRING)),
    )
    return Shape(
        "an agent card",
        where("AgentCard"),
        (
            Field("name", TEXT, "error"),
            Field("description", STRING),
            Field("url", ADDRESS, "error"),
            Field("provider", provider),
            Field("version", TEXT, "error"),
            Field("documentationUrl", LINK),
            Field("capabilities", capabilities, "error", "an agent card has capabilities, an object"),
            Field("authentication", authentication),
            Field("defaultInputModes", WORDS),
            Field("defaultOutputModes", WORDS),
            Field("skills", Several("a list of skills", skill), "error"),
        ),
    )


_TABLES: dict[Older, Shape] = {"0.3": _table("0.3"), "0.2": _table("0.2"), "0.1": _table_01()}


def check_older(report: Report, card: Json, source: str | None, version: Older) -> None:
    """Report what a card of 0.3, 0.2 or 0.1 has wrong."""
    _TABLES[version].check(report, (), card, "")
    skills = as_list(card.get("skills"))
    skill_rules = _where(version, "AgentSkill")
    check_unique(report, ("skills",), skills, "id", f"{skill_rules}: the id of a skill is its own", "error")
    _check_main(report, card, source, version)
    if version == "0.1":
        return
    _check_interfaces(report, card, source, version)
    rule = f"{_where(version, 'AgentCard')}: security names schemes the card declares"
    check_declared(report, card, ("security",), card.get("security"), rule)
    if version == "0.3":
        _check_03(report, card, skills)


def _check_03(report: Report, card: Json, skills: list[object]) -> None:
    for index, skill in enumerate(skills):
        rule = "A2A 0.3, 5.5.4: security names schemes the card declares"
        check_declared(report, card, ("skills", index, "security"), as_object(skill).get("security"), rule)
    if card.get("supportsAuthenticatedExtendedCard") is True and card.get("securitySchemes") in (None, {}):
        rule = "A2A 0.3, 7.10: the extended card is for callers who use one of the card's securitySchemes"
        report.error(("supportsAuthenticatedExtendedCard",), rule, "true without securitySchemes")


def _check_main(report: Report, card: Json, source: str | None, version: Older) -> None:
    url, transport = card.get("url"), card.get("preferredTransport") or "JSONRPC"
    _check_scheme(report, ("url",), url, transport, version)
    check_site(report, ("url",), url, _ENCRYPTED[version], source)


def _check_scheme(report: Report, path: tuple[str | int, ...], url: object, transport: object, version: Older) -> None:
    if isinstance(url, str) and address_of(url) and transport in CORE_BINDINGS and not is_web(url):
        where = "A2A 0.3, 3.1" if version == "0.3" else _where(version, "AgentCard")
        report.error(path, f"{where}: an agent is reached by an http or https URL", f"{quoted(url)} is neither")


def _check_interfaces(report: Report, card: Json, source: str | None, version: Older) -> None:
    others = [as_object(each) for each in as_list(card.get("additionalInterfaces"))]
    seen: dict[tuple[str, str], int] = {}
    for index, each in enumerate(others):
        path = ("additionalInterfaces", index)
        url, transport = each.get("url"), each.get("transport")
        _check_scheme(report, (*path, "url"), url, transport, version)
        check_site(report, (*path, "url"), url, _ENCRYPTED[version], source)
        if not isinstance(url, str) or not isinstance(transport, str):
            continue
        if (url, transport) in seen:
            rule = "Advice: an interface is listed once"
            report.warning(path, rule, f"the same as {field_of(('additionalInterfaces', seen[url, transport]))}")
        seen.setdefault((url, transport), index)
    if version == "0.3" and seen:
        _check_agreement(report, card, seen)


def _check_agreement(report: Report, card: Json, others: dict[tuple[str, str], int]) -> None:
    """The main address appears among the others with the transport the card prefers, unless it is wrong itself."""
    url, preferred = card.get("url"), card.get("preferredTransport") or "JSONRPC"
    if not isinstance(url, str) or not is_web(url) or not isinstance(preferred, str) or (url, preferred) in others:
        return
    fault = TRANSPORT.fault(preferred)
    if fault is not None and fault[0] == "error":
        return
    other = next(((transport, index) for (at, transport), index in others.items() if at == url), None)
    if other is None:
        rule = "A2A 0.3, 5.6.4: additionalInterfaces should have an entry for url with preferredTransport too"
        report.warning(("additionalInterfaces",), rule, "no such entry")
    else:
        rule = "A2A 0.3, 5.6.4: the transport declared for the main url is preferredTransport"
        report.error(
            ("additionalInterfaces", other[1], "transport"), rule, f"{quoted(other[0])} instead of {quoted(preferred)}"
        )
