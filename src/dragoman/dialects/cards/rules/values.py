"""The scalar shapes of a card: texts, flags, media types, URLs and versions."""

from __future__ import annotations

import re

from dragoman.dialects.cards.rules.shape import Fault, ListOf, Scalar, describe
from dragoman.dialects.cards.rules.urls import is_loopback_host, is_uri, parse_target, parse_url

CORE_BINDINGS = ("JSONRPC", "GRPC", "HTTP+JSON")

# Ranges such as text/* are accepted: readers match them.
_MEDIA_TYPE = re.compile(r"[\w!#$&^.+*-]+/[\w!#$&^.+*-]+(\s*;.*)?", re.ASCII | re.DOTALL)
_RELEASE = re.compile(r"\d+\.\d+(?P<patch>\.\d+)?", re.ASCII)
_SEPARATORS = re.compile(r"[-_ /+]")
_BY_LETTERS = {_SEPARATORS.sub("", name): name for name in CORE_BINDINGS}


def _check_string(value: object) -> Fault:
    return None if isinstance(value, str) else ("error", f"{describe(value)} instead of a text")


def _check_text(value: object) -> Fault:
    if isinstance(value, str) and not value.strip():
        return "error", "an empty text"
    return _check_string(value)


def _check_flag(value: object) -> Fault:
    return None if isinstance(value, bool) else ("error", f"{describe(value)} instead of true or false")


def _check_object(value: object) -> Fault:
    return None if isinstance(value, dict) else ("error", f"{describe(value)} instead of an object")


def _check_media_type(value: object) -> Fault:
    if isinstance(value, str) and not _MEDIA_TYPE.fullmatch(value):
        return "error", f"{describe(value)} is not a media type"
    return _check_string(value)


def _check_address(value: object) -> Fault:
    if isinstance(value, str) and parse_url(value) is None:
        return "error", f"{describe(value)} is not an absolute URL"
    return _check_string(value)


def _check_interface_address(value: object) -> Fault:
    if isinstance(value, str) and parse_target(value) is not None:
        return None
    return _check_address(value)


def _check_secure_address(value: object) -> Fault:
    fault = _check_address(value)
    parsed = parse_url(str(value))
    if fault is not None or parsed is None or parsed.scheme == "https":
        return fault
    # Tests on one machine have no certificate.
    if parsed.scheme == "http" and is_loopback_host(parsed.host):
        return None
    return "error", f"{describe(value)} is not https"


def _check_link(value: object) -> Fault:
    # A link for people: nothing breaks when it is invalid.
    if isinstance(value, str) and not is_uri(value):
        return "warning", f"{describe(value)} is not an absolute URL"
    return _check_string(value)


def _check_uri(value: object) -> Fault:
    fault = _check_text(value)
    if fault is None and not is_uri(str(value)):
        return "error", f"{describe(value)} is not a URI"
    return fault


def _check_release(value: object) -> Fault:
    if isinstance(value, str) and not _RELEASE.fullmatch(value):
        return "error", f"{describe(value)} is not a version"
    return _check_string(value)


def _check_release_without_patch(value: object) -> Fault:
    fault = _check_release(value)
    if fault is None and str(value).count(".") > 1:
        return "warning", f"{describe(value)} has a patch number"
    return fault


def _check_binding(value: object) -> Fault:
    fault = _check_text(value)
    if fault is not None or value in CORE_BINDINGS:
        return fault
    binding = _BY_LETTERS.get(_SEPARATORS.sub("", str(value)).upper())
    if binding is not None:
        return "error", f"{describe(value)} is not how {binding} is written"
    return None if is_uri(str(value)) else ("warning", f"{describe(value)} is none of them")


def _check_transport(value: object) -> Fault:
    fault = _check_binding(value)
    # 0.3 allows any name for other transports.
    return fault if fault is None or fault[0] == "error" else ("warning", f"{describe(value)} is not one of them")


def one_of(*words: str) -> Scalar:
    """Build the shape of a value that is one of some words."""

    def fault(value: object) -> Fault:
        return None if value in words else ("error", f"{describe(value)} is not one of them")

    return Scalar(f"{', '.join(words[:-1])} or {words[-1]}", fault)


STRING = Scalar("a text", _check_string)
TEXT = Scalar("a text that is not empty", _check_text)
FLAG = Scalar("true or false", _check_flag)
OBJECT = Scalar("an object", _check_object)
ADDRESS = Scalar("an absolute URL", _check_address)
# Only GRPC may have host:port; that is not for a table to say.
INTERFACE_ADDRESS = Scalar("an absolute URL, for GRPC also host:port", _check_interface_address)
SECURE_ADDRESS = Scalar("an absolute https URL", _check_secure_address)
LINK = Scalar("an absolute URL", _check_link)
URI = Scalar("a URI", _check_uri)
RELEASE = Scalar("the version of A2A it follows, such as 0.3.0", _check_release)
MAJOR_MINOR = Scalar("the A2A version spoken there as Major.Minor, such as 1.0", _check_release_without_patch)
BINDING = Scalar("JSONRPC, GRPC, HTTP+JSON or the URI of a binding of one's own", _check_binding)
TRANSPORT = Scalar("JSONRPC, GRPC or HTTP+JSON", _check_transport)
WORDS = ListOf("a list of texts", STRING)
MEDIA_TYPES = ListOf("a list of media types such as text/plain", Scalar("a media type", _check_media_type))
