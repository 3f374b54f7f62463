"""The rules of each version for a card: a table of its fields, then the checks that no table can express."""

from __future__ import annotations

from typing import Any, Literal

from dragoman.dialects.cards.rules.security import (
    REQUIREMENTS_03,
    SCHEMES_1,
    build_requirements_1,
    build_schemes_03,
    build_signatures,
    check_declared,
)
from dragoman.dialects.cards.rules.shape import (
    Field,
    Json,
    Level,
    ListOf,
    ObjectOf,
    Path,
    Report,
    Shape,
    check_unique,
    format_path,
    quoted,
)
from dragoman.dialects.cards.rules.urls import check_url, is_http_url, parse_target, parse_url
from dragoman.dialects.cards.rules.values import (
    ADDRESS,
    BINDING,
    CORE_BINDINGS,
    FLAG,
    INTERFACE_ADDRESS,
    LINK,
    MAJOR_MINOR,
    MEDIA_TYPES,
    OBJECT,
    RELEASE,
    STRING,
    TEXT,
    TRANSPORT,
    URI,
    WORDS,
)
from dragoman.dialects.table import GRPC, JSONRPC, V0_1, V0_2, V0_3, V1_0
from dragoman.model.json import as_list, as_object

Version = Literal["1.0", "0.3", "0.2", "0.1"]

# 1.0 and 0.3 have numbered sections; for earlier versions the rules refer to the schema.
_SECTIONS: dict[str, dict[str, str]] = {
    V1_0: {
        "AgentCard": "4.4.1",
        "AgentProvider": "4.4.2",
        "AgentCapabilities": "4.4.3",
        "AgentExtension": "4.4.4",
        "AgentSkill": "4.4.5",
        "AgentInterface": "4.4.6",
        "AgentCardSignature": "8.4.2",
        "extended card": "13.3",
    },
    V0_3: {
        "AgentCard": "5.5",
        "AgentProvider": "5.5.1",
        "AgentCapabilities": "5.5.2",
        "AgentExtension": "5.5.2.1",
        "SecurityScheme": "5.5.3",
        "AgentSkill": "5.5.4",
        "AgentInterface": "5.5.5",
        "AgentCardSignature": "5.5.6",
        "extended card": "7.10",
    },
}
_HTTPS = "agents in production are reached over https"
_ENCRYPTED = {
    V1_0: "A2A 1.0, 7.1: agents in production are reached over an encrypted line",
    V0_3: f"A2A 0.3, 4.1: {_HTTPS}",
    V0_2: f"Advice: {_HTTPS}",
    V0_1: f"Advice: {_HTTPS}",
}
# Where it is written how an interface is reached.
_REACHED: dict[str, str] = {V1_0: "A2A 1.0, 4.4.6", V0_3: "A2A 0.3, 3.1"}
# Members of older cards that 1.0 does not read, and what it has instead.
_REPLACED_BY = {
    "url": "supportedInterfaces",
    "preferredTransport": "the order of supportedInterfaces",
    "additionalInterfaces": "supportedInterfaces",
    "security": "securityRequirements",
    "supportsAuthenticatedExtendedCard": "capabilities.extendedAgentCard",
    "supportsExtendedAgentCard": "capabilities.extendedAgentCard",
}


def _section(version: Version, name: str) -> str:
    sections = _SECTIONS.get(version)
    return f"A2A {version} schema, {name}" if sections is None else f"A2A {version}, {sections[name]}"


# -- the tables --------------------------------------------------------------------------------------------------------


def _build_fields(shape: Shape, *names: str, need: Level | None = None) -> tuple[Field, ...]:
    return tuple(Field(name, shape, need) for name in names)


def _build_capabilities(version: Version) -> Field:
    last = "extendedAgentCard" if version == V1_0 else "stateTransitionHistory"
    fields = _build_fields(FLAG, "streaming", "pushNotifications", last)
    if version != V0_1:
        extension = ObjectOf(
            "an extension",
            _section(version, "AgentExtension"),
            (*_build_fields(URI, "uri", need="error"), Field("description", STRING), Field("required", FLAG), _PARAMS),
        )
        fields += (Field("extensions", ListOf("a list of extensions", extension)),)
    shape = ObjectOf("capabilities", _section(version, "AgentCapabilities"), fields)
    return Field("capabilities", shape, "error", "an agent card has capabilities, an object")


def _build_provider(version: Version) -> Field:
    url = Field("url", LINK, None if version == V0_1 else "error")
    shape = ObjectOf("a provider", _section(version, "AgentProvider"), (Field("organization", TEXT, "error"), url))
    return Field("provider", shape)


def _build_skill(version: Version, *more: Field) -> ObjectOf:
    described, tags, modes = Field("description", TEXT, "error"), Field("tags", WORDS, "error"), MEDIA_TYPES
    if version == V1_0:
        # 5.7 requires an item in every required list, while 8.4.1 allows defaults in required fields and shows empty
        # skills. Nothing breaks without skills or tags, so this is only a warning.
        says, where = "a skill has at least one tag", "A2A 1.0, 4.4.5 and 5.7"
        tags = Field("tags", WORDS._replace(empty="warning"), "error", says, where)
    elif version == V0_1:
        says = "a skill may do without description, but callers choose a skill by it"
        described, tags, modes = Field("description", STRING, "warning", says), Field("tags", WORDS), WORDS
    texts = _build_fields(TEXT, "id", "name", need="error")
    lists = (tags, Field("examples", WORDS), *_build_fields(modes, "inputModes", "outputModes"))
    return ObjectOf("a skill", _section(version, "AgentSkill"), (*texts, described, *lists, *more))


_PARAMS = Field("params", OBJECT)
_MODES = MEDIA_TYPES._replace(empty="error")


def _build_table_1() -> ObjectOf:
    card, skill, interface = (_section(V1_0, name) for name in ("AgentCard", "AgentSkill", "AgentInterface"))
    an_interface = ObjectOf(
        "an interface",
        interface,
        (
            Field("url", INTERFACE_ADDRESS, "error"),
            Field("protocolBinding", BINDING, "error", where=f"{interface} and 5.8"),
            Field("protocolVersion", MAJOR_MINOR, "error", where=f"{interface} and 3.6"),
            Field("tenant", STRING),
        ),
    )
    interfaces = ListOf("a list of interfaces", an_interface, "error")
    a_skill = _build_skill(V1_0, Field("securityRequirements", build_requirements_1(skill)))
    skills = ListOf("a list of skills", a_skill, "warning")
    return ObjectOf(
        "an agent card",
        card,
        (
            *_build_fields(TEXT, "name", "description", need="error"),
            Field("supportedInterfaces", interfaces, "error", "an agent card names at least one interface"),
            _build_provider(V1_0),
            Field("version", TEXT, "error"),
            *_build_fields(LINK, "documentationUrl", "iconUrl"),
            _build_capabilities(V1_0),
            Field("securitySchemes", SCHEMES_1),
            Field("securityRequirements", build_requirements_1(card)),
            *_build_fields(_MODES, "defaultInputModes", "defaultOutputModes", need="error"),
            Field("skills", skills, "error", "an agent card lists at least one skill", f"{card} and 5.7"),
            Field("signatures", build_signatures(_section(V1_0, "AgentCardSignature"), key=True)),
        ),
    )


def _build_table_03(version: Literal["0.3", "0.2"]) -> ObjectOf:
    new = version == V0_3
    interface = ObjectOf(
        "an interface",
        _section(version, "AgentInterface"),
        (Field("url", INTERFACE_ADDRESS, "error"), Field("transport", TRANSPORT, "error")),
    )
    skill = _build_skill(version, *_build_fields(REQUIREMENTS_03, "security") if new else ())
    # The text of 0.3 requires preferredTransport, while its schema defaults to JSONRPC.
    says = "an agent card has preferredTransport, JSONRPC, GRPC or HTTP+JSON; readers take JSONRPC without it"
    transport = Field("preferredTransport", TRANSPORT)
    if new:
        transport = Field("preferredTransport", TRANSPORT, "warning", says, "A2A 0.3, 5.6.1")
    signed = (Field("signatures", build_signatures(_section(V0_3, "AgentCardSignature"), key=False)),) if new else ()
    return ObjectOf(
        "an agent card",
        _section(version, "AgentCard"),
        (
            # protocolVersion came with 0.2.5.
            Field("protocolVersion", RELEASE, "error" if new else "warning"),
            *_build_fields(TEXT, "name", "description", need="error"),
            Field("url", INTERFACE_ADDRESS, "error"),
            transport,
            Field("additionalInterfaces", ListOf("a list of interfaces", interface)),
            _build_provider(version),
            Field("iconUrl", LINK),
            Field("version", TEXT, "error"),
            Field("documentationUrl", LINK),
            _build_capabilities(version),
            Field("securitySchemes", build_schemes_03(_section(version, "SecurityScheme"), all_types=new)),
            Field("security", REQUIREMENTS_03),
            *_build_fields(MEDIA_TYPES, "defaultInputModes", "defaultOutputModes", need="error"),
            Field("skills", ListOf("a list of skills", skill), "error"),
            Field("supportsAuthenticatedExtendedCard", FLAG),
            *signed,
        ),
    )


def _build_table_01() -> ObjectOf:
    authentication = ObjectOf(
        "authentication",
        _section(V0_1, "AgentAuthentication"),
        (Field("schemes", WORDS, "error"), Field("credentials", STRING)),
    )
    return ObjectOf(
        "an agent card",
        _section(V0_1, "AgentCard"),
        (
            Field("name", TEXT, "error"),
            Field("description", STRING),
            Field("url", ADDRESS, "error"),
            _build_provider(V0_1),
            Field("version", TEXT, "error"),
            Field("documentationUrl", LINK),
            _build_capabilities(V0_1),
            Field("authentication", authentication),
            *_build_fields(WORDS, "defaultInputModes", "defaultOutputModes"),
            Field("skills", ListOf("a list of skills", _build_skill(V0_1)), "error"),
        ),
    )


_TABLES: dict[Version, ObjectOf] = {
    V1_0: _build_table_1(),
    V0_3: _build_table_03(V0_3),
    V0_2: _build_table_03(V0_2),
    V0_1: _build_table_01(),
}


# -- beyond the tables -------------------------------------------------------------------------------------------------


def check_card(report: Report, card: Json, source: str | None, version: Version, *, alone: bool = True) -> None:
    """Report the violations of a card of that version; `alone` says that it is written for no other version."""
    _TABLES[version].check(report, (), card, "")
    skills = as_list(card.get("skills"))
    rule = f"{_section(version, 'AgentSkill')}: the id of a skill is its own"
    check_unique(report, ("skills",), skills, "id", rule, "error")
    if version == V1_0:
        _check_1(report, card, source, alone=alone)
        _check_requirements(report, card, skills, version, "securityRequirements", "requirements name")
        return
    main = ("url",), card.get("url"), card.get("preferredTransport") or JSONRPC
    _check_address(report, *main, source, version)
    if version == V0_1:
        return
    others = _check_interfaces(report, card, source, version, "additionalInterfaces", ("url", "transport"))
    _check_requirements(report, card, skills, version, "security", "security names")
    if version == V0_3:
        _check_agreement(report, card, others)
        name = "supportsAuthenticatedExtendedCard"
        _check_extended(report, card, (name,), card.get(name), version)


def _check_1(report: Report, card: Json, source: str | None, *, alone: bool) -> None:
    _check_interfaces(report, card, source, V1_0, "supportedInterfaces", ("url",))
    capabilities = as_object(card.get("capabilities"))
    path = ("capabilities", "extensions")
    rule = "Advice: an extension is declared once"
    check_unique(report, path, as_list(capabilities.get("extensions")), "uri", rule, "warning")
    if capabilities.get("stateTransitionHistory") is not None:
        rule = "A2A 1.0, 4.4.3: stateTransitionHistory was dropped"
        report.warning(("capabilities", "stateTransitionHistory"), rule, "not read")
    name = "extendedAgentCard"
    _check_extended(report, card, ("capabilities", name), capabilities.get(name), V1_0)
    for name in _REPLACED_BY if alone else ():
        if card.get(name) is not None:
            rule = f"{_section(V1_0, 'AgentCard')}: a card of 1.0 has {_REPLACED_BY[name]} instead of {name}"
            report.warning((name,), rule, "not read")


def _check_extended(report: Report, card: Json, path: Path, value: object, version: Version) -> None:
    if value is True and card.get("securitySchemes") in (None, {}):
        where = _section(version, "extended card")
        rule = f"{where}: the extended card is for callers who use one of the card's securitySchemes"
        report.error(path, rule, "true without securitySchemes")


def _check_requirements(
    report: Report, card: Json, skills: list[object], version: Version, name: str, subject: str
) -> None:
    rule = f"{_section(version, 'AgentCard')}: {subject} schemes the card declares"
    check_declared(report, card, (name,), card.get(name), rule)
    rule = f"{_section(version, 'AgentSkill')}: {subject} schemes the card declares"
    for index, skill in enumerate(skills if version in _SECTIONS else ()):
        check_declared(report, card, ("skills", index, name), as_object(skill).get(name), rule)


def _check_address(
    report: Report, path: Path, url: object, binding: object, source: str | None, version: Version
) -> None:
    if not isinstance(url, str):
        return
    parsed, target = parse_url(url), parse_target(url)
    where = _REACHED.get(version) or _section(version, "AgentCard")
    if binding == GRPC:
        # The specification wants a URL, while the official SDKs dial what is there as it is, and that is host:port.
        parsed = parsed or target
        if parsed is not None and target is None and not is_http_url(url):
            rule = f"{where}: GRPC is reached by host:port, or by an http or https URL"
            report.error(path, rule, f"{quoted(url)} is none of them")
    elif parsed is None:
        # The table of 0.1, which has no GRPC, has reported it.
        if target is not None and version != V0_1:
            rule = f"{where}: only GRPC is reached by host:port, all else by an absolute URL"
            report.error(path, rule, f"{quoted(url)} is not an absolute URL")
    elif binding in CORE_BINDINGS and not is_http_url(url):
        reached = "JSONRPC and HTTP+JSON are" if version == V1_0 else "an agent is"
        report.error(path, f"{where}: {reached} reached by an http or https URL", f"{quoted(url)} is neither")
    if parsed is not None:
        check_url(report, path, url, parsed, _ENCRYPTED[version], source, any_port=binding == GRPC)


def _check_interfaces(
    report: Report, card: Json, source: str | None, version: Version, name: str, needed: tuple[str, ...]
) -> dict[tuple[Any, ...], int]:
    """Check a list of interfaces; return the indexes of the complete ones by their `needed` members."""
    first_index: dict[tuple[Any, ...], int] = {}
    for index, each in enumerate(as_list(card.get(name))):
        path, interface = (name, index), as_object(each)
        binding, tenant = interface.get("protocolBinding" if version == V1_0 else "transport"), None
        _check_address(report, (*path, "url"), interface.get("url"), binding, source, version)
        key = tuple(interface.get(each) for each in needed)
        if version == V1_0:
            tenant = interface.get("tenant")
            key += tuple(str(interface.get(each) or "") for each in ("protocolBinding", "protocolVersion", "tenant"))
        if isinstance(tenant, str) and "/" in tenant:
            rule = "Advice: a tenant becomes one step of the path over HTTP+JSON, so it holds no slash"
            report.warning((*path, "tenant"), rule, quoted(tenant))
        if not all(isinstance(each, str) for each in key):
            continue
        if key in first_index:
            rule = "Advice: an interface is listed once"
            report.warning(path, rule, f"the same as {format_path((name, first_index[key]))}")
        first_index.setdefault(key, index)
    return first_index


def _check_agreement(report: Report, card: Json, others: dict[tuple[Any, ...], int]) -> None:
    """Check that the main URL is among the additional interfaces with preferredTransport, unless it is invalid."""
    url, preferred = card.get("url"), card.get("preferredTransport") or JSONRPC
    usable = others and isinstance(url, str) and is_http_url(url) and isinstance(preferred, str)
    if not usable or (url, preferred) in others:
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
        text = f"{quoted(other[0])} instead of {quoted(preferred)}"
        report.error(("additionalInterfaces", other[1], "transport"), rule, text)
