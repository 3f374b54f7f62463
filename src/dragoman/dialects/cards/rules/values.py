"""The values of a card that have no parts: texts, flags, media types, addresses, versions."""

from __future__ import annotations

import re

from dragoman.dialects.cards.rules.addresses import address_of, is_here, is_uri
from dragoman.dialects.cards.rules.shape import Fault, Leaf, Several, described

CORE_BINDINGS = ("JSONRPC", "GRPC", "HTTP+JSON")

# Ranges such as text/* are let pass: readers match them.
_MEDIA_TYPE = re.compile(r"[\w!#$&^.+*-]+/[\w!#$&^.+*-]+(\s*;.*)?", re.ASCII | re.DOTALL)
_RELEASE = re.compile(r"\d+\.\d+(?P<patch>\.\d+)?", re.ASCII)
_JOINTS = re.compile(r"[-_ /+]")
_SPELLED = {_JOINTS.sub("", name): name for name in CORE_BINDINGS}


def _string(value: object) -> Fault:
    return None if isinstance(value, str) else ("error", f"{described(value)} instead of a text")


def _text(value: object) -> Fault:
    if isinstance(value, str) and not value.strip():
        return "error", "an empty text"
    return _string(value)


def _flag(value: object) -> Fault:
    return None if isinstance(value, bool) else ("error", f"{described(value)} instead of true or false")


def _anything(value: object) -> Fault:
    return None if isinstance(value, dict) else ("error", f"{described(value)} instead of an object")


def _media_type(value: object) -> Fault:
    if isinstance(value, str) and not _MEDIA_TYPE.fullmatch(value):
        return "error", f"{described(value)} is not a media type"
    return _string(value)


def _address(value: object) -> Fault:
    if isinstance(value, str) and address_of(value) is None:
        return "error", f"{described(value)} is not an absolute URL"
    return _string(value)


def _secure(value: object) -> Fault:
    fault = _address(value)
    address = address_of(str(value))
    if fault is not None or address is None or address.scheme == "https":
        return fault
    # Whoever tries it out on one machine has no certificate.
    if address.scheme == "http" and is_here(address.host):
        return None
    return "error", f"{described(value)} is not https"


def _link(value: object) -> Fault:
    # For people to follow. Nothing breaks when it is wrong.
    if isinstance(value, str) and not is_uri(value):
        return "warning", f"{described(value)} is not an absolute URL"
    return _string(value)


def _uri(value: object) -> Fault:
    fault = _text(value)
    if fault is None and not is_uri(str(value)):
        return "error", f"{described(value)} is not a URI"
    return fault


def _release(value: object) -> Fault:
    if isinstance(value, str) and not _RELEASE.fullmatch(value):
        return "error", f"{described(value)} is not a version"
    return _string(value)


def _release_without_patch(value: object) -> Fault:
    fault = _release(value)
    if fault is None and str(value).count(".") > 1:
        return "warning", f"{described(value)} has a patch number"
    return fault


def _binding(value: object) -> Fault:
    fault = _text(value)
    if fault is not None or value in CORE_BINDINGS:
        return fault
    meant = _SPELLED.get(_JOINTS.sub("", str(value)).upper())
    if meant is not None:
        return "error", f"{described(value)} is not how {meant} is written"
    return None if is_uri(str(value)) else ("warning", f"{described(value)} is none of them")


def _transport(value: object) -> Fault:
    fault = _binding(value)
    # 0.3 lets transports of others have any name.
    return fault if fault is None or fault[0] == "error" else ("warning", f"{described(value)} is not one of them")


def one_of(*words: str) -> Leaf:
    """One of some words."""

    def fault(value: object) -> Fault:
        return None if value in words else ("error", f"{described(value)} is not one of them")

    return Leaf(f"{', '.join(words[:-1])} or {words[-1]}", fault)


STRING = Leaf("a text", _string)
TEXT = Leaf("a text that is not empty", _text)
FLAG = Leaf("true or false", _flag)
OBJECT = Leaf("an object", _anything)
ADDRESS = Leaf("an absolute URL", _address)
SECURE_ADDRESS = Leaf("an absolute https URL", _secure)
LINK = Leaf("an absolute URL", _link)
URI = Leaf("a URI", _uri)
RELEASE = Leaf("the version of A2A it follows, such as 0.3.0", _release)
MAJOR_MINOR = Leaf("the A2A version spoken there as Major.Minor, such as 1.0", _release_without_patch)
BINDING = Leaf("JSONRPC, GRPC, HTTP+JSON or the URI of a binding of one's own", _binding)
TRANSPORT = Leaf("JSONRPC, GRPC or HTTP+JSON", _transport)
WORDS = Several("a list of texts", STRING)
MEDIA_TYPES = Several("a list of media types such as text/plain", Leaf("a media type", _media_type))
