"""Converts the security schemes and requirements of cards between 0.1, 0.3 and 1.0.

1.0 identifies a scheme by the one member it holds (`httpAuthSecurityScheme`), 0.3 by its `type`. 1.0 wraps the
scopes of a requirement (`{"schemes": {"k": {"list": [...]}}}`), 0.3 does not (`{"k": [...]}`).
"""

from __future__ import annotations

from typing import Any, cast

from dragoman.model.json import as_object

_MEMBERS = {
    "apiKey": "apiKeySecurityScheme",
    "http": "httpAuthSecurityScheme",
    "oauth2": "oauth2SecurityScheme",
    "openIdConnect": "openIdConnectSecurityScheme",
    "mutualTLS": "mtlsSecurityScheme",
}
_FLOWS_03 = ("authorizationCode", "clientCredentials", "implicit", "password")
_FLOW_KEYS_03 = ("authorizationUrl", "tokenUrl", "refreshUrl", "scopes")
_HTTP_SCHEMES = ("bearer", "basic", "digest")

Json = dict[str, Any]


def scheme_to_03(scheme: Json) -> Json:
    """Convert a 1.0 scheme to 0.3, with exactly the keys of 0.3; one of an unknown kind is unchanged."""
    flat = _flatten(scheme)
    flat.pop("location", None)
    if "flows" in flat:
        flows = as_object(flat["flows"])
        flat["flows"] = {
            name: {key: flow[key] for key in _FLOW_KEYS_03 if key in flow}
            for name, flow in ((name, as_object(flows[name])) for name in _FLOWS_03 if name in flows)
        }
    return flat


def scheme_to_both(scheme: Json) -> Json:
    """Convert a 1.0 scheme to a form with the members of both 0.3 and 1.0."""
    return _flatten(scheme) | scheme


def scheme_from(scheme: Json) -> Json:
    """Convert a scheme of 0.3, of 1.0 or of both to 1.0; the members of 1.0 win."""
    for member in _MEMBERS.values():
        if isinstance(scheme.get(member), dict):
            return {member: scheme[member]}
    member = _MEMBERS.get(str(scheme.get("type")))
    if member is None:
        return scheme
    rest = {key: value for key, value in scheme.items() if key != "type"}
    if "in" in rest:
        rest["location"] = rest.pop("in")
    return {member: rest}


def requirement_to_03(requirement: Json) -> Json:
    """Convert a 1.0 requirement to 0.3."""
    return {name: as_object(scopes).get("list", []) for name, scopes in as_object(requirement.get("schemes")).items()}


def requirement_from(requirement: Json) -> Json:
    """Convert a requirement of 0.3 or 1.0 to 1.0."""
    if isinstance(requirement.get("schemes"), dict):
        return requirement
    return {"schemes": {name: {"list": scopes} if scopes else {} for name, scopes in requirement.items()}}


def schemes_from_01(authentication: Json) -> dict[str, Json]:
    """Convert the schemes of a 0.1 card to 1.0; only those of HTTP can be."""
    names = cast("list[Any]", authentication["schemes"]) if isinstance(authentication.get("schemes"), list) else []
    return {
        name.lower(): {"httpAuthSecurityScheme": {"scheme": name}}
        for name in names
        if isinstance(name, str) and name.lower() in _HTTP_SCHEMES
    }


def schemes_to_01(schemes: Json) -> list[str]:
    """Convert schemes to the names of a 0.1 card: HTTP schemes by their own names, others by those on the card."""
    names: list[str] = []
    for name, scheme in schemes.items():
        http = as_object(as_object(scheme).get("httpAuthSecurityScheme"))
        names.append(str(http.get("scheme") or name))
    return names


def _flatten(scheme: Json) -> Json:
    for kind, member in _MEMBERS.items():
        if isinstance(scheme.get(member), dict):
            flat = {"type": kind, **as_object(scheme[member])}
            if kind == "apiKey" and "location" in flat:
                flat["in"] = flat["location"]
            return flat
    return dict(scheme)
