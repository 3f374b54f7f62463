"""The rules for security schemes, requirements and signatures on cards of 1.0 and 0.3."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import msgspec

from dragoman.dialects.cards.rules.shape import (
    Fault,
    Field,
    Json,
    ListOf,
    MapOf,
    ObjectOf,
    OneOf,
    Path,
    Report,
    Scalar,
    describe,
    quoted,
)
from dragoman.dialects.cards.rules.urls import is_uri
from dragoman.dialects.cards.rules.values import OBJECT, SECURE_ADDRESS, STRING, TEXT, WORDS, one_of
from dragoman.model.json import as_list, as_object, decode_any

_V1 = "A2A 1.0, "
_BASE64URL = re.compile(r"[A-Za-z0-9_-]+")
_SCOPES = MapOf("an object of scopes, each with its description", STRING)
_DESCRIPTION = Field("description", STRING)
_METADATA = Field("oauth2MetadataUrl", SECURE_ADDRESS)
_KEY_LOCATIONS = one_of("query", "header", "cookie")

# The URLs that each flow requires.
_FLOW_ADDRESSES = {
    "authorizationCode": ("authorizationUrl", "tokenUrl"),
    "clientCredentials": ("tokenUrl",),
    "implicit": ("authorizationUrl",),
    "password": ("tokenUrl",),
    "deviceCode": ("deviceAuthorizationUrl", "tokenUrl"),
}
_FLOW_SECTIONS = {"authorizationCode": "4.5.8", "clientCredentials": "4.5.9", "deviceCode": "4.5.10"}
# 1.0 keeps these flows and requires nothing inside them.
_DEPRECATED = ("implicit", "password")
_DEPRECATED_1 = {name: f"{_V1}4.5.7: the {name} flow is deprecated" for name in _DEPRECATED}
_DEPRECATED_03 = {
    "implicit": "RFC 9700, 2.1.2: the implicit flow should not be used, and A2A 1.0 deprecates it",
    "password": "RFC 9700, 2.4: the password flow must not be used, and A2A 1.0 deprecates it",
}


def _build_flow(name: str, where: str, *, strict: bool) -> ObjectOf:
    need = "error" if strict else None
    required = tuple(Field(address, SECURE_ADDRESS, need) for address in _FLOW_ADDRESSES[name])
    optional = (Field("refreshUrl", SECURE_ADDRESS), Field("scopes", _SCOPES, need))
    return ObjectOf(f"the {name} flow", where, (*required, *optional))


_FLOWS_1 = OneOf(
    "flows is exactly one of authorizationCode, clientCredentials, deviceCode, implicit and password",
    f"{_V1}4.5.7",
    {
        name: _build_flow(name, _V1 + _FLOW_SECTIONS.get(name, "4.5.7"), strict=name not in _DEPRECATED)
        for name in _FLOW_ADDRESSES
    },
    deprecated=_DEPRECATED_1,
)


def _build_schemes(sections: Sequence[str], location_field: str, flows: OneOf, *oauth2: Field) -> list[ObjectOf]:
    """Build the shapes of the five scheme types: API key, HTTP, OAuth 2.0, OpenID Connect and mutual TLS."""
    fields: tuple[tuple[str, tuple[Field, ...]], ...] = (
        ("an API key", (Field(location_field, _KEY_LOCATIONS, "error"), Field("name", TEXT, "error"))),
        ("an HTTP", (Field("scheme", TEXT, "error"), Field("bearerFormat", STRING))),
        ("an OAuth 2.0", (Field("flows", flows, "error", "an OAuth 2.0 scheme has flows, an object"), *oauth2)),
        ("an OpenID Connect", (Field("openIdConnectUrl", SECURE_ADDRESS, "error"),)),
        ("a mutual TLS", ()),
    )
    return [
        ObjectOf(f"{noun} scheme", where, (*own, _DESCRIPTION))
        for (noun, own), where in zip(fields, sections, strict=True)
    ]


_MEMBERS_1 = ("apiKeySecurityScheme", "httpAuthSecurityScheme", "oauth2SecurityScheme", "openIdConnectSecurityScheme")
SCHEMES_1 = MapOf(
    "an object of security schemes by name",
    OneOf(
        f"a security scheme is exactly one of {', '.join(_MEMBERS_1)} and mtlsSecurityScheme",
        f"{_V1}4.5.1",
        dict(
            zip(
                (*_MEMBERS_1, "mtlsSecurityScheme"),
                _build_schemes([f"{_V1}4.5.{number}" for number in range(2, 7)], "location", _FLOWS_1, _METADATA),
                strict=True,
            )
        ),
    ),
)


class _Requirement(NamedTuple):
    """A requirement of 1.0: `{"schemes": {"name": {"list": [scopes]}}}`."""

    phrase: str
    shape: ObjectOf

    def check(self, report: Report, path: Path, value: object, rule: str) -> None:
        """Report a requirement in the form of 0.3, and the violations of one in that of 1.0."""
        members = as_object(value)
        if members and "schemes" not in members:
            report.error((*path, "schemes"), f"{self.shape.where}: {self.phrase}", "missing: this is the form of 0.3")
        else:
            self.shape.check(report, path, value, rule)


def build_requirements_1(where: str) -> ListOf:
    """Build the shape of the security requirements of 1.0."""
    names = MapOf("an object of scheme names", ObjectOf("what a scheme needs", where, (Field("list", WORDS),)))
    phrase = 'a security requirement is spelled {"schemes": {"name": {"list": []}}}'
    shape = ObjectOf("a security requirement", where, (Field("schemes", names),))
    return ListOf("a list of security requirements", _Requirement(phrase, shape))


class _TypedScheme(NamedTuple):
    """A scheme of 0.3, whose shape depends on its `type`."""

    phrase: str
    where: str
    types: Mapping[str, ObjectOf]

    def check(self, report: Report, path: Path, value: object, rule: str) -> None:
        """Report a missing or unknown type, and the violations of a scheme of that type."""
        if not isinstance(value, dict):
            report.error(path, rule, f"{describe(value)} instead of an object")
            return
        kind = cast("Json", value).get("type")
        shape = self.types.get(kind) if isinstance(kind, str) else None
        if shape is not None:
            shape.check(report, path, cast("Json", value), rule)
            return
        rule_text = f"{self.where}: a security scheme has a type, one of {', '.join(self.types)}"
        report.error((*path, "type"), rule_text, "missing" if kind is None else f"{describe(kind)} is not a known type")


def build_schemes_03(where: str, *, all_types: bool) -> MapOf:
    """Build the shape of the security schemes of 0.3; without `all_types` those of 0.2."""
    flows = OneOf(
        "flows names at least one of authorizationCode, clientCredentials, implicit and password",
        where,
        {name: _build_flow(name, where, strict=True) for name in _FLOW_ADDRESSES if name != "deviceCode"},
        exclusive=False,
        missing="warning",
        deprecated=_DEPRECATED_03,
    )
    shapes = _build_schemes([where] * 5, "in", flows, *((_METADATA,) if all_types else ()))
    types: dict[str, ObjectOf] = dict(
        zip(("apiKey", "http", "oauth2", "openIdConnect", "mutualTLS"), shapes, strict=True)
    )
    if not all_types:
        del types["mutualTLS"]
    return MapOf("an object of security schemes by name", _TypedScheme("a security scheme", where, types))


REQUIREMENTS_03 = ListOf("a list of security requirements", MapOf("an object that gives each scheme its scopes", WORDS))


def check_declared(report: Report, card: Json, path: Path, requirements: object, rule: str) -> None:
    """Report every scheme that the requirements, in either form, name and the card does not declare."""
    schemes = card.get("securitySchemes")
    if schemes is not None and not isinstance(schemes, dict):
        return  # reported elsewhere
    declared = as_object(cast("object", schemes))
    for index, each in enumerate(as_list(requirements)):
        members = as_object(each)
        inner = members.get("schemes")
        names, step = (cast("Json", inner), ("schemes",)) if isinstance(inner, dict) else (members, ())
        for name in names:
            if name not in declared:
                report.error((*path, index, *step, name), rule, f"{quoted(name)} is not among securitySchemes")


class _ProtectedHeader(NamedTuple):
    """The protected header of a signature: base64url of a JSON object."""

    phrase: str
    where: str
    members: tuple[str, ...]

    def check(self, report: Report, path: Path, value: object, rule: str) -> None:
        """Report a header that cannot be decoded, and its missing members."""
        header = _decode_header(value)
        if header is None:
            report.error(path, rule, "an empty text" if value == "" else "no base64url of a JSON object")
            return
        for name in self.members:
            member = header.get(name)
            if not isinstance(member, str) or not member:
                report.error(path, f"{self.where}: the protected header of a signature has {name}", f"{name} missing")
        if header.get("alg") == "none":
            report.error(path, f"{self.where}: the protected header names the algorithm of the signature", "alg none")
        key_set = header.get("jku")
        if key_set is not None and not (isinstance(key_set, str) and is_uri(key_set) and key_set.startswith("https:")):
            report.warning(path, f"{self.where}: keys are fetched over https", f"jku is {describe(key_set)}")
        if "kid" in self.members and header.get("typ") != "JOSE":
            found = f"typ is {describe(header['typ'])}" if "typ" in header else "typ missing"
            report.warning(path, f"{self.where}: the protected header should have typ JOSE", found)


def _decode_header(value: object) -> Json | None:
    if not isinstance(value, str) or not _BASE64URL.fullmatch(value):
        return None
    try:
        header = decode_any(base64.urlsafe_b64decode(value + "=" * (-len(value) % 4)))
    except (binascii.Error, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return cast("Json", header) if isinstance(header, dict) else None


def _check_base64url(value: object) -> Fault:
    if isinstance(value, str) and _BASE64URL.fullmatch(value) and len(value) % 4 != 1:
        return None
    return "error", f"{describe(value)} is not base64url" if value else "an empty text"


def build_signatures(where: str, *, key: bool) -> ListOf:
    """Build the shape of the signatures of a card; with `key` the protected header must name its key."""
    members = ("alg", "kid") if key else ("alg",)
    coded = Scalar("a base64url text", _check_base64url)
    header = _ProtectedHeader("base64url of a JSON object", where, members)
    fields = (Field("protected", header, "error"), Field("signature", coded, "error"), Field("header", OBJECT))
    return ListOf("a list of signatures", ObjectOf("a signature", where, fields))
