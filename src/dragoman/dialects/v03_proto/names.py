"""What gRPC of 0.3 has other than its REST: resource names in requests, and the card as the proto has it.

`V03Proto` reads both forms, so this is only for writing.
"""

from __future__ import annotations

from typing import Any

from dragoman.dialects.cards.security import requirement_from, scheme_from
from dragoman.model.json import as_object, as_objects
from dragoman.model.operation import Operation

Json = dict[str, Any]

_OF_TASK = (Operation.GET, Operation.CANCEL, Operation.SUBSCRIBE)
_OF_WEBHOOK = (Operation.GET_PUSH, Operation.DELETE_PUSH)


def named_request(operation: Operation, params: Json) -> Json:
    """Convert what `V03Proto.write_params` writes to the request of gRPC, which names what it is about.

    A task is `tasks/ID`, a webhook `tasks/ID/pushNotificationConfigs/ID`.
    """
    if operation in _OF_TASK:
        return {**params, "name": f"tasks/{params.get('id') or ''}"}
    if operation in _OF_WEBHOOK:
        return {
            **params,
            "name": f"tasks/{params.get('taskId') or ''}/pushNotificationConfigs/{params.get('id') or ''}",
        }
    if operation is Operation.LIST_PUSH:
        return {**params, "parent": f"tasks/{params.get('taskId') or ''}"}
    return params


def card_of_proto(card: Json) -> Json:
    """Convert a 0.3 card to that of the proto, whose security is spelled as in 1.0, with one flow a scheme."""
    converted = _with_requirements(card)
    if "skills" in card:
        converted["skills"] = [_with_requirements(each) for each in as_objects(card["skills"])]
    if "securitySchemes" in card:
        schemes = as_object(card["securitySchemes"])
        converted["securitySchemes"] = {name: _scheme(as_object(each)) for name, each in schemes.items()}
    return converted


def _with_requirements(owner: Json) -> Json:
    if "security" not in owner:
        return dict(owner)
    return {**owner, "security": [requirement_from(each) for each in as_objects(owner["security"])]}


def _scheme(scheme: Json) -> Json:
    converted = scheme_from(scheme)
    oauth2 = as_object(converted.get("oauth2SecurityScheme"))
    flows = as_object(oauth2.get("flows"))
    if len(flows) < 2:
        return converted
    first = next(iter(flows))
    return {"oauth2SecurityScheme": {**oauth2, "flows": {first: flows[first]}}}
