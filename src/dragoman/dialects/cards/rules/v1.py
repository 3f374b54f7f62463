"""What A2A 1.0 asks of a card."""

from __future__ import annotations

from dragoman.dialects.cards.rules.addresses import address_of, check_site, is_web
from dragoman.dialects.cards.rules.security import SCHEMES_1, check_declared, requirements_1, signatures
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
    BINDING,
    CORE_BINDINGS,
    FLAG,
    LINK,
    MAJOR_MINOR,
    MEDIA_TYPES,
    OBJECT,
    STRING,
    TEXT,
    URI,
    WORDS,
)

_CARD = "A2A 1.0, 4.4.1"
_INTERFACE = "A2A 1.0, 4.4.6"
_SKILL = "A2A 1.0, 4.4.5"
_MODES = MEDIA_TYPES._replace(empty="error")

_EXTENSION = Shape(
    "an extension",
    "A2A 1.0, 4.4.4",
    (Field("uri", URI, "error"), Field("description", STRING), Field("required", FLAG), Field("params", OBJECT)),
)
_CAPABILITIES = Shape(
    "capabilities",
    "A2A 1.0, 4.4.3",
    (
        Field("streaming", FLAG),
        Field("pushNotifications", FLAG),
        Field("extendedAgentCard", FLAG),
        Field("extensions", Several("a list of extensions", _EXTENSION)),
    ),
)
_AN_INTERFACE = Shape(
    "an interface",
    _INTERFACE,
    (
        Field("url", ADDRESS, "error"),
        Field("protocolBinding", BINDING, "error", where="A2A 1.0, 4.4.6 and 5.8"),
        Field("protocolVersion", MAJOR_MINOR, "error", where="A2A 1.0, 4.4.6 and 3.6"),
        Field("tenant", STRING),
    ),
)
# 5.7 wants something in every required list, while 8.4.1 lets a required field have its default and shows skills
# empty. Nothing breaks without skills or tags, so there the contradiction is no more than a warning.
_A_SKILL = Shape(
    "a skill",
    _SKILL,
    (
        Field("id", TEXT, "error"),
        Field("name", TEXT, "error"),
        Field("description", TEXT, "error"),
        Field(
            "tags", WORDS._replace(empty="warning"), "error", "a skill has at least one tag", "A2A 1.0, 4.4.5 and 5.7"
        ),
        Field("examples", WORDS),
        Field("inputModes", MEDIA_TYPES),
        Field("outputModes", MEDIA_TYPES),
        Field("securityRequirements", requirements_1(_SKILL)),
    ),
)
_PROVIDER = Shape("a provider", "A2A 1.0, 4.4.2", (Field("organization", TEXT, "error"), Field("url", LINK, "error")))
CARD = Shape(
    "an agent card",
    _CARD,
    (
        Field("name", TEXT, "error"),
        Field("description", TEXT, "error"),
        Field(
            "supportedInterfaces",
            Several("a list of interfaces", _AN_INTERFACE, "error"),
            "error",
            "an agent card names at least one interface",
        ),
        Field("provider", _PROVIDER),
        Field("version", TEXT, "error"),
        Field("documentationUrl", LINK),
        Field("iconUrl", LINK),
        Field("capabilities", _CAPABILITIES, "error", "an agent card has capabilities, an object"),
        Field("securitySchemes", SCHEMES_1),
        Field("securityRequirements", requirements_1(_CARD)),
        Field("defaultInputModes", _MODES, "error"),
        Field("defaultOutputModes", _MODES, "error"),
        Field(
            "skills",
            Several("a list of skills", _A_SKILL, "warning"),
            "error",
            "an agent card lists at least one skill",
            "A2A 1.0, 4.4.1 and 5.7",
        ),
        Field("signatures", signatures("A2A 1.0, 8.4.2", key=True)),
    ),
)

# What an older card holds and 1.0 does not read, and what 1.0 has instead.
_MOVED = {
    "url": "supportedInterfaces",
    "preferredTransport": "the order of supportedInterfaces",
    "additionalInterfaces": "supportedInterfaces",
    "security": "securityRequirements",
    "supportsAuthenticatedExtendedCard": "capabilities.extendedAgentCard",
    "supportsExtendedAgentCard": "capabilities.extendedAgentCard",
}


def check_v1(report: Report, card: Json, source: str | None, *, alone: bool) -> None:
    """Report what a card of 1.0 has wrong; `alone` when it claims to be nothing else."""
    CARD.check(report, (), card, "")
    _check_interfaces(report, as_list(card.get("supportedInterfaces")), source)
    _check_capabilities(report, card)
    skills = as_list(card.get("skills"))
    check_unique(report, ("skills",), skills, "id", f"{_SKILL}: the id of a skill is its own", "error")
    _check_requirements(report, card, skills)
    for name in _MOVED if alone else ():
        if card.get(name) is not None:
            report.warning((name,), f"{_CARD}: a card of 1.0 has {_MOVED[name]} instead of {name}", "not read")


def _check_interfaces(report: Report, interfaces: list[object], source: str | None) -> None:
    seen: dict[tuple[str, ...], int] = {}
    for index, each in enumerate(interfaces):
        path = ("supportedInterfaces", index)
        interface = as_object(each)
        url, binding, tenant = interface.get("url"), interface.get("protocolBinding"), interface.get("tenant")
        if isinstance(url, str) and address_of(url) and binding in CORE_BINDINGS and not is_web(url):
            rule = f"{_INTERFACE}: JSONRPC, GRPC and HTTP+JSON are reached by an http or https URL"
            report.error((*path, "url"), rule, f"{quoted(url)} is neither")
        check_site(
            report, (*path, "url"), url, "A2A 1.0, 7.1: agents in production are reached over an encrypted line", source
        )
        if isinstance(tenant, str) and "/" in tenant:
            rule = "Advice: a tenant becomes one step of the path over HTTP+JSON, so it holds no slash"
            report.warning((*path, "tenant"), rule, quoted(tenant))
        if not isinstance(url, str):
            continue
        key = tuple(str(interface.get(name) or "") for name in ("url", "protocolBinding", "protocolVersion", "tenant"))
        if key in seen:
            rule = "Advice: an interface is listed once"
            report.warning(path, rule, f"the same as {field_of(('supportedInterfaces', seen[key]))}")
        seen.setdefault(key, index)


def _check_capabilities(report: Report, card: Json) -> None:
    capabilities = as_object(card.get("capabilities"))
    path = ("capabilities", "extensions")
    rule = "Advice: an extension is declared once"
    check_unique(report, path, as_list(capabilities.get("extensions")), "uri", rule, "warning")
    if capabilities.get("stateTransitionHistory") is not None:
        rule = "A2A 1.0, 4.4.3: stateTransitionHistory was dropped"
        report.warning(("capabilities", "stateTransitionHistory"), rule, "not read")
    if capabilities.get("extendedAgentCard") is True and card.get("securitySchemes") in (None, {}):
        rule = "A2A 1.0, 13.3: the extended card is for callers who use one of the card's securitySchemes"
        report.error(("capabilities", "extendedAgentCard"), rule, "true without securitySchemes")


def _check_requirements(report: Report, card: Json, skills: list[object]) -> None:
    name = "securityRequirements"
    check_declared(report, card, (name,), card.get(name), f"{_CARD}: requirements name schemes the card declares")
    for index, skill in enumerate(skills):
        rule = f"{_SKILL}: requirements name schemes the card declares"
        check_declared(report, card, ("skills", index, name), as_object(skill).get(name), rule)
