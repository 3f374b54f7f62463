"""Security schemes and requirements on cards: the forms of 0.1, 0.3 and 1.0.

1.0 names a scheme by the one member it holds (`httpAuthSecurityScheme`), 0.3 by its `type`. 1.0 wraps the
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
    """Spell a 1.0 scheme as 0.3 does, with exactly the keys 0.3 has; one of no known kind stays as it is."""
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
    """Spell a 1.0 scheme so that readers of 0.3 and of 1.0 both find theirs."""
    return _flatten(scheme) | scheme


def scheme_from(scheme: Json) -> Json:
    """Read a scheme in either form, or in both at once; a form of 1.0 wins."""
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
    """Spell a 1.0 requirement as 0.3 does."""
    return {name: as_object(scopes).get("list", []) for name, scopes in as_object(requirement.get("schemes")).items()}


def requirement_from(requirement: Json) -> Json:
    """Read a requirement in either form."""
    if isinstance(requirement.get("schemes"), dict):
        return requirement
    return {"schemes": {name: {"list": scopes} if scopes else {} for name, scopes in requirement.items()}}


def schemes_from_01(authentication: Json) -> dict[str, Json]:
    """What can be told of the schemes a 0.1 card names, which are those of HTTP."""
    names = cast("list[Any]", authentication["schemes"]) if isinstance(authentication.get("schemes"), list) else []
    return {
        name.lower(): {"httpAuthSecurityScheme": {"scheme": name}}
        for name in names
        if isinstance(name, str) and name.lower() in _HTTP_SCHEMES
    }


def schemes_to_01(schemes: Json) -> list[str]:
    """What a 0.1 card calls these schemes: those of HTTP by their own names, others as the card does."""
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
