"""The kinds of setting values, and their parsers: each returns the checked value, or raises ValueError with what it
must be.

`is_text` says that the value came as text, from a flag or the environment, and may be a number or a switch in words.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Any, NamedTuple, cast
from urllib.parse import urlsplit

from dragoman.server.config.store_url import without_password
from dragoman.server.http.authentication import AuthSettings

Network = IPv4Network | IPv6Network
_TOKEN = re.compile(r"[!-~]{16,1000}")


def as_json(value: Any) -> str:
    """Format a value for an error."""
    return json.dumps(value, ensure_ascii=False, default=repr)


def parse_text(value: Any, is_text: bool) -> str:
    """Parse text that is not empty. Raises ValueError."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"must be text, not {as_json(value)}")
    return value


def parse_console_token(value: Any, is_text: bool) -> str:
    """Parse the token of the console, which nobody must guess. Raises ValueError, which does not show the token."""
    if not isinstance(value, str) or not _TOKEN.fullmatch(value):
        raise ValueError("must be at least 16 letters, digits and signs, without spaces")
    return value


def parse_texts(value: Any, is_text: bool) -> tuple[str, ...]:
    """Parse several strings, or one that is separated by commas. Raises ValueError."""
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",")]
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"must be a list of texts, not {as_json(value)}")
    return tuple(parse_text(one, is_text) for one in cast("list[Any]", value))


def whole_parser(low: int, high: int | None = None) -> Callable[[Any, bool], int]:
    """Return a parser of whole numbers within bounds."""
    requirement = f"must be a whole number from {low}" + ("" if high is None else f" to {high}")

    def read(value: Any, is_text: bool) -> int:
        number: Any = int(value) if is_text and re.fullmatch(r"-?[0-9]+", value) else value
        if type(number) is not int or number < low or (high is not None and number > high):
            raise ValueError(f"{requirement}, not {as_json(value)}")
        return number

    return read


def seconds_parser(*, zero: bool) -> Callable[[Any, bool], float]:
    """Return a parser of times in seconds."""
    return _number_parser("seconds", zero=zero)


def number_parser(*, zero: bool) -> Callable[[Any, bool], float]:
    """Return a parser of numbers that need not be whole."""
    return _number_parser("a number", zero=zero)


def _number_parser(what: str, *, zero: bool) -> Callable[[Any, bool], float]:
    requirement = f"must be {what}, 0 or more" if zero else f"must be {what}, more than 0"

    def read(value: Any, is_text: bool) -> float:
        number: Any = value
        if is_text and re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", value):
            number = float(value) if "." in value else int(value)
        if type(number) not in (int, float) or not math.isfinite(number) or number < 0 or not (number or zero):
            raise ValueError(f"{requirement}, not {as_json(value)}")
        return cast("float", number)

    return read


def parse_switch(value: Any, is_text: bool) -> bool:
    """Parse a switch. Raises ValueError."""
    words = {"true": True, "1": True, "on": True, "yes": True, "false": False, "0": False, "off": False, "no": False}
    if is_text and value.lower() in words:
        return words[value.lower()]
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {as_json(value)}")
    return value


class ChoiceParser(NamedTuple):
    """A parser that accepts one of these words."""

    choices: tuple[str, ...]

    def __call__(self, value: Any, is_text: bool) -> str:
        """Parse a value. Raises ValueError with the nearest word."""
        word: Any = value.lower() if is_text else value
        if word not in self.choices:
            near = get_close_matches(str(value), self.choices, n=1)
            hint = f"; did you mean {as_json(near[0])}?" if near else ""
            raise ValueError(f"must be {', '.join(as_json(one) for one in self.choices)}, not {as_json(value)}{hint}")
        return cast("str", word)


def choice_parser(*choices: str) -> ChoiceParser:
    """Return a parser that accepts one of these words."""
    return ChoiceParser(choices)


class ListenAddress(NamedTuple):
    """Where to listen: a port, and a host if it is another one than that of the setting `host`."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}" if self.host else str(self.port)


def listen_parser(example: int, default_host: str = "") -> Callable[[Any, bool], ListenAddress]:
    """Return a parser of `[HOST:]PORT`; its errors name a port as an example."""

    def parse(value: Any, is_text: bool) -> ListenAddress:
        address = _parse_listen(value, example)
        return address if address.host else address._replace(host=default_host)

    return parse


def _parse_listen(value: Any, example: int) -> ListenAddress:
    host, _, port = str(value).rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    is_port = isinstance(value, (str, int)) and port.isascii() and port.isdecimal() and len(port) <= 5
    if not is_port or isinstance(value, bool) or int(port) > 65535 or str(value).startswith(":") or "/" in host:
        raise ValueError(f"must be a port, or an address like 127.0.0.1:{example}, not {as_json(value)}")
    return ListenAddress(host, int(port))


def parse_url(value: Any, is_text: bool) -> str:
    """Parse a public http(s) URL. Raises ValueError."""
    if not isinstance(value, str) or not _is_url(value):
        printable = without_password(value) if isinstance(value, str) else as_json(value)
        raise ValueError(f"must be an address like https://agents.example.com, not {printable}")
    return value.rstrip("/")


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 reading it raises when it is no number
    except ValueError:  # not chained: its text may contain a password
        return False
    plain = not (parts.query or parts.fragment or parts.username or parts.password)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and plain


def parse_grpc_url(value: Any, is_text: bool) -> str:
    """Parse the public address of gRPC: `HOST:PORT`, or an http(s) URL. Raises ValueError."""
    text = value if isinstance(value, str) else ""
    if "://" in text and _is_url(text):
        return text
    try:
        parts = urlsplit(f"//{text}")
        usable = bool(parts.hostname and parts.port) and parts.netloc == text and "@" not in text
    except ValueError:
        usable = False
    if not usable:
        printable = without_password(text) if text else as_json(value)
        raise ValueError(f"must be an address like agents.example.com:50051, not {printable}")
    return text


def parse_networks(value: Any, is_text: bool) -> tuple[Network, ...]:
    """Parse networks like 10.0.0.0/8. Raises ValueError."""
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",")]
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"must be networks like 10.0.0.0/8, not {as_json(value)}")
    return tuple(_parse_network(one) for one in cast("list[Any]", value))


def _parse_network(value: Any) -> Network:
    if isinstance(value, (IPv4Network, IPv6Network)):
        return value
    if not isinstance(value, str):  # ip_network accepts any number as an address
        raise ValueError(f"must be networks like 10.0.0.0/8, not {as_json(value)}")
    try:
        return ip_network(value)
    except ValueError as error:
        raise ValueError(f"must be networks like 10.0.0.0/8: {error}") from None


def parse_auth(value: Any, is_text: bool) -> Any:
    """Parse `auth`: a function that authenticates, names of schemes, or names with their tables.

    Raises ValueError for anything else.
    """
    if callable(value):
        return value
    tables: dict[str, Any] = {}
    if isinstance(value, str):
        names = [name.strip() for name in value.split(",") if name.strip()]
    elif isinstance(value, Mapping):
        tables = dict(cast("Mapping[str, Any]", value))
        names = list(tables)
        for name, table in tables.items():
            if not isinstance(table, Mapping):
                raise ValueError(f"{name}: must be a table of what is set for it, as in {{}}, not {as_json(table)}")
    elif isinstance(value, (list, tuple)):
        names = [each for one in cast("list[Any]", value) for each in str(one).split(",") if each]
    else:
        raise ValueError(f"must be names of schemes or a function, not {as_json(value)}")
    if not names:
        raise ValueError("names no scheme")
    return AuthSettings(tuple(names), tables)


# -- kinds -------------------------------------------------------------------------------------------------------------


class Kind(NamedTuple):
    """How the values of a setting are written: their parser, and how a help text names one.

    `takes` is the type that a keyword argument may have, where it differs from the type of the checked value. A flag of
    a kind that can `repeat` may be given several times.
    """

    parse: Callable[[Any, bool], Any]
    metavar: str
    takes: str = ""
    repeat: bool = False


SWITCH = Kind(parse_switch, "")

Text = Annotated[str, Kind(parse_text, "TEXT")]
Texts = Annotated[tuple[str, ...], Kind(parse_texts, "NAME", "str | Sequence[str]", repeat=True)]
Token = Annotated[str, Kind(parse_console_token, "TEXT")]
Url = Annotated[str, Kind(parse_url, "URL")]
Networks = Annotated[tuple[Network, ...], Kind(parse_networks, "NETWORK", "str | Sequence[str | Network]", repeat=True)]
Auth = Annotated[
    Any,
    Kind(
        parse_auth,
        "SCHEME",
        "str | Sequence[str] | Mapping[str, Mapping[str, Any]] | Callable[..., Any]",
        repeat=True,
    ),
]
GrpcUrl = Annotated[str, Kind(parse_grpc_url, "HOST:PORT")]
GrpcListen = Annotated[ListenAddress, Kind(listen_parser(50051), "[HOST:]PORT", "str | int")]
MetricsListen = Annotated[ListenAddress, Kind(listen_parser(9464, "127.0.0.1"), "[HOST:]PORT", "str | int")]
Port = Annotated[int, Kind(whole_parser(0, 65535), "NUMBER")]
Count = Annotated[int, Kind(whole_parser(0), "NUMBER")]
Positive = Annotated[int, Kind(whole_parser(1), "NUMBER")]
Bytes = Annotated[int, Kind(whole_parser(0), "BYTES")]
Size = Annotated[int, Kind(whole_parser(1), "BYTES")]
HeadSize = Annotated[int, Kind(whole_parser(1024), "BYTES")]
Rate = Annotated[float, Kind(number_parser(zero=True), "NUMBER")]
Seconds = Annotated[float, Kind(seconds_parser(zero=True), "SECONDS")]
Interval = Annotated[float, Kind(seconds_parser(zero=False), "SECONDS")]
