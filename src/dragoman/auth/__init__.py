"""Client credentials. Pass one of these classes as `auth=`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dragoman.auth.outbound.device import DeviceCode as DeviceCode
    from dragoman.auth.outbound.fixed import ApiKey as ApiKey
    from dragoman.auth.outbound.fixed import Basic as Basic
    from dragoman.auth.outbound.fixed import Bearer as Bearer
    from dragoman.auth.outbound.fixed import Cookie as Cookie
    from dragoman.auth.outbound.mutual_tls import MutualTLS as MutualTLS
    from dragoman.auth.outbound.oauth2 import OAuth2 as OAuth2

# The module of each class, imported on first use: most callers need one of them, or none.
_MODULES = {
    "Bearer": "dragoman.auth.outbound.fixed",
    "ApiKey": "dragoman.auth.outbound.fixed",
    "Basic": "dragoman.auth.outbound.fixed",
    "Cookie": "dragoman.auth.outbound.fixed",
    "OAuth2": "dragoman.auth.outbound.oauth2",
    "DeviceCode": "dragoman.auth.outbound.device",
    "MutualTLS": "dragoman.auth.outbound.mutual_tls",
}

__all__ = [  # noqa: RUF022 - in the order of the reference
    "Bearer",
    "ApiKey",
    "Basic",
    "Cookie",
    "OAuth2",
    "DeviceCode",
    "MutualTLS",
]


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'dragoman.auth' has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
