"""The JSON of every version, spelled and read by hand: nothing here uses `dragoman.dialects`.

The canonical form is the JSON of A2A 1.0, as model values hold it. A spelling writes the parameters of an operation in
its version, and reads results, events and webhooks of its version back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import msgspec

from dragoman import Message, Task
from dragoman.model.event import ArtifactUpdate, StatusUpdate
from dragoman.model.operation import ListTasksResponse, Operation, TaskPushNotificationConfig

Json = dict[str, Any]
Event = Task | Message | StatusUpdate | ArtifactUpdate
ROLES = {"ROLE_USER": "user", "ROLE_AGENT": "agent"}
TASK_PARAMETERS = (Operation.GET, Operation.CANCEL, Operation.SUBSCRIBE)


class Spelling(ABC):
    """One version's JSON."""

    @abstractmethod
    def params(self, operation: Operation, params: Json) -> Json:
        """Spell the parameters of an operation, which are given as in 1.0."""

    @abstractmethod
    def sent(self, result: Json) -> Task | Message:
        """Read the result of sending a message."""

    @abstractmethod
    def task(self, result: Json) -> Task:
        """Read a task."""

    @abstractmethod
    def event(self, event: Json) -> Event:
        """Read the event of a stream."""

    @abstractmethod
    def webhook(self, result: Json) -> TaskPushNotificationConfig:
        """Read a webhook."""

    def webhooks(self, result: Any) -> list[TaskPushNotificationConfig]:
        """Read the webhooks of a task."""
        listed = result if isinstance(result, list) else result.get("configs", [])
        return [self.webhook(each) for each in listed]

    def page(self, result: Json) -> ListTasksResponse:
        """Read a page of tasks."""
        tasks = tuple(self.task(each) for each in result["tasks"])
        return ListTasksResponse(tasks, result["nextPageToken"], result["pageSize"], result["totalSize"])


def model_of(form: Json, kind: type[Any]) -> Any:
    """Build a model value from canonical JSON."""
    if "generation" in form:
        form = {**form, "generation": int(form["generation"])}
    return msgspec.convert(form, kind)


_ENVELOPE: dict[str, type[Event]] = {
    "task": Task,
    "message": Message,
    "statusUpdate": StatusUpdate,
    "artifactUpdate": ArtifactUpdate,
}


class Version1(Spelling):
    """1.0 and 1.1: the canonical form itself."""

    def params(self, operation: Operation, params: Json) -> Json:
        return params

    def sent(self, result: Json) -> Task | Message:
        value = self.event(result)
        assert isinstance(value, (Task, Message))
        return value

    def task(self, result: Json) -> Task:
        return model_of(result, Task)

    def event(self, event: Json) -> Event:
        ((name, form),) = event.items()
        return model_of(form, _ENVELOPE[name])

    def webhook(self, result: Json) -> TaskPushNotificationConfig:
        return msgspec.convert(result, TaskPushNotificationConfig)


class Older(Spelling):
    """What the versions before 1.0 have in common: other words for states and roles, and parts of another form."""

    parts = "parts"

    @abstractmethod
    def spell_part(self, part: Json) -> Json:
        """Spell a part."""

    @abstractmethod
    def read_part(self, part: Json) -> Json:
        """Read a part."""

    def read_state(self, word: str) -> str:
        """Read a state: `input-required` in JSON-RPC."""
        return f"TASK_STATE_{word.upper().replace('-', '_')}"

    def read_role(self, word: str) -> str:
        """Read a role: `user` in JSON-RPC."""
        return f"ROLE_{word.upper()}"

    def read_message(self, message: Json) -> Json:
        read = {name: value for name, value in message.items() if name not in ("kind", self.parts)}
        read["role"] = self.read_role(message["role"])
        read["parts"] = [self.read_part(part) for part in message[self.parts]]
        return read

    def read_status(self, status: Json) -> Json:
        read = {**status, "state": self.read_state(status["state"])}
        return {**read, "message": self.read_message(status["message"])} if "message" in status else read

    def read_artifact(self, artifact: Json) -> Json:
        return {**artifact, "parts": [self.read_part(part) for part in artifact["parts"]]}

    def read_task(self, task: Json) -> Json:
        read = {name: value for name, value in task.items() if name != "kind"}
        read["status"] = self.read_status(task["status"])
        read["history"] = [self.read_message(each) for each in task.get("history", [])]
        read["artifacts"] = [self.read_artifact(each) for each in task.get("artifacts", [])]
        return read

    def read_update(self, update: Json) -> Json:
        read = {name: value for name, value in update.items() if name not in ("kind", "final")}
        if "status" in read:
            return {**read, "status": self.read_status(read["status"])}
        return {**read, "artifact": self.read_artifact(read["artifact"])}

    def task(self, result: Json) -> Task:
        return model_of(self.read_task(result), Task)


def spell_webhook(webhook: Json) -> Json:
    """Spell a webhook as before 1.0: without its task, and with a list of schemes."""
    spelled = {name: value for name, value in webhook.items() if name not in ("taskId", "authentication")}
    if "authentication" in webhook:
        asked = {name: value for name, value in webhook["authentication"].items() if name != "scheme"}
        spelled["authentication"] = {**asked, "schemes": [webhook["authentication"]["scheme"]]}
    return spelled


def read_webhook(task_id: str, webhook: Json) -> TaskPushNotificationConfig:
    """Read a webhook of a version before 1.0."""
    read = {**webhook, "taskId": task_id}
    if "authentication" in read:
        asked = {name: value for name, value in read["authentication"].items() if name != "schemes"}
        read["authentication"] = {**asked, "scheme": read["authentication"]["schemes"][0]}
    return msgspec.convert(read, TaskPushNotificationConfig)


class Version03(Older):
    """0.3 over JSON-RPC."""

    tag = "kind"

    def spell_part(self, part: Json) -> Json:
        beside = {"metadata": part["metadata"]} if "metadata" in part else {}
        for kind in ("text", "data"):
            if kind in part:
                return {self.tag: kind, kind: part[kind], **beside}
        names = {"raw": "bytes", "url": "uri", "filename": "name", "mediaType": "mimeType"}
        return {self.tag: "file", "file": {names[name]: part[name] for name in names if name in part}, **beside}

    def read_part(self, part: Json) -> Json:
        read = {name: value for name, value in part.items() if name not in (self.tag, "file")}
        names = {"bytes": "raw", "uri": "url", "name": "filename", "mimeType": "mediaType"}
        return read | {names[name]: value for name, value in part.get("file", {}).items()}

    def spell_message(self, message: Json) -> Json:
        """Spell the user's message."""
        parts = [self.spell_part(part) for part in message["parts"]]
        return {"kind": "message", **message, "role": ROLES[message["role"]], "parts": parts}

    def params(self, operation: Operation, params: Json) -> Json:
        if operation in (Operation.SEND, Operation.STREAM):
            spelled = {**params, "message": self.spell_message(params["message"])}
            return spelled | ({"configuration": self.configuration(params)} if "configuration" in params else {})
        if operation is Operation.CREATE_PUSH:
            return {"taskId": params["taskId"], "pushNotificationConfig": spell_webhook(params)}
        if operation in (Operation.GET_PUSH, Operation.DELETE_PUSH, Operation.LIST_PUSH):
            named = {"pushNotificationConfigId": params["id"]} if "id" in params else {}
            return {"id": params["taskId"], **named}
        return params

    def configuration(self, params: Json) -> Json:
        """Spell the configuration of a message."""
        spelled = dict(params["configuration"])
        if "returnImmediately" in spelled:
            spelled["blocking"] = not spelled.pop("returnImmediately")
        if "taskPushNotificationConfig" in spelled:
            spelled["pushNotificationConfig"] = spell_webhook(spelled.pop("taskPushNotificationConfig"))
        return spelled

    def sent(self, result: Json) -> Task | Message:
        value = self.event(result)
        assert isinstance(value, (Task, Message))
        return value

    def event(self, event: Json) -> Event:
        if event["kind"] == "task":
            return self.task(event)
        if event["kind"] == "message":
            return model_of(self.read_message(event), Message)
        return model_of(self.read_update(event), StatusUpdate if "status" in event else ArtifactUpdate)

    def webhook(self, result: Json) -> TaskPushNotificationConfig:
        return read_webhook(result["taskId"], result["pushNotificationConfig"])


class Proto03(Older):
    """0.3 as ProtoJSON: over REST, and over gRPC, where resources have names."""

    parts = "content"

    def __init__(self, *, named: bool) -> None:
        self._named = named

    def spell_part(self, part: Json) -> Json:
        beside = {"metadata": part["metadata"]} if "metadata" in part else {}
        if "text" in part:
            return {"text": part["text"], **beside}
        if "data" in part:
            return {"data": {"data": part["data"]}, **beside}
        names = {"raw": "fileWithBytes", "url": "fileWithUri", "filename": "name", "mediaType": "mimeType"}
        return {"file": {names[name]: part[name] for name in names if name in part}, **beside}

    def read_part(self, part: Json) -> Json:
        read = {name: value for name, value in part.items() if name not in ("data", "file")}
        names = {"fileWithBytes": "raw", "fileWithUri": "url", "name": "filename", "mimeType": "mediaType"}
        read |= {names[name]: value for name, value in part.get("file", {}).items()}
        return {**read, "data": part["data"]["data"]} if "data" in part else read

    def read_state(self, word: str) -> str:
        return "TASK_STATE_CANCELED" if word == "TASK_STATE_CANCELLED" else word

    def read_role(self, word: str) -> str:
        return word

    def params(self, operation: Operation, params: Json) -> Json:
        if operation in (Operation.SEND, Operation.STREAM):
            return self._send(params)
        if operation in TASK_PARAMETERS:
            rest = {name: value for name, value in params.items() if name != "id"}
            return {"name": f"tasks/{params['id']}", **rest} if self._named else params
        if operation is Operation.CREATE_PUSH:
            return self._create_push(params)
        if "taskId" not in params or not self._named:
            return params
        if operation is Operation.LIST_PUSH:
            return {"parent": f"tasks/{params['taskId']}"}
        return {"name": f"tasks/{params['taskId']}/pushNotificationConfigs/{params['id']}"}

    def _send(self, params: Json) -> Json:
        message = {name: value for name, value in params["message"].items() if name != "parts"}
        message["content"] = [self.spell_part(part) for part in params["message"]["parts"]]
        spelled = {**params, "message": message}
        if "configuration" in params:
            configuration = dict(params["configuration"])
            # ProtoJSON writes no false: a configuration without the member does not wait.
            if not configuration.pop("returnImmediately", False):
                configuration["blocking"] = True
            if "taskPushNotificationConfig" in configuration:
                webhook = configuration.pop("taskPushNotificationConfig")
                configuration["pushNotification"] = spell_webhook(webhook)
            spelled["configuration"] = configuration
        return spelled

    def _create_push(self, params: Json) -> Json:
        webhook = {"pushNotificationConfig": spell_webhook(params)}
        if self._named:
            task = f"tasks/{params['taskId']}"
            named = {"name": f"{task}/pushNotificationConfigs/{params['id']}"} if "id" in params else {}
            return {"parent": task, "configId": params.get("id", ""), "config": {**webhook, **named}}
        return {"taskId": params["taskId"], "config": webhook}

    def sent(self, result: Json) -> Task | Message:
        # Its proto calls the message `msg`; REST has it as JSON-RPC calls it.
        value = self.event(result)
        assert isinstance(value, (Task, Message))
        return value

    def event(self, event: Json) -> Event:
        ((name, form),) = event.items()
        if name == "task":
            return self.task(form)
        if name in ("message", "msg"):
            return model_of(self.read_message(form), Message)
        return model_of(self.read_update(form), _ENVELOPE[name])

    def webhook(self, result: Json) -> TaskPushNotificationConfig:
        _, task_id, _, config_id = result["name"].split("/")
        webhook = result["pushNotificationConfig"]
        assert webhook.get("id", config_id) == config_id
        return read_webhook(task_id, {**webhook, "id": config_id})


class Version01(Version03):
    """0.1 over JSON-RPC: sessions, and neither ids of messages and artifacts nor events with a context."""

    tag = "type"

    def params(self, operation: Operation, params: Json) -> Json:
        if operation in (Operation.SEND, Operation.STREAM):
            return self._send(params)
        if operation is Operation.CREATE_PUSH:
            return {"id": params["taskId"], "pushNotificationConfig": spell_webhook(params)}
        return {"id": params["taskId"]} if operation is Operation.GET_PUSH else params

    def _send(self, params: Json) -> Json:
        message = params["message"]
        spelled: Json = {
            "message": {
                "role": ROLES[message["role"]],
                "parts": [self.spell_part(part) for part in message["parts"]],
                **{name: message[name] for name in ("metadata",) if name in message},
            },
            **{name: params[name] for name in ("metadata",) if name in params},
        }
        names = {"taskId": "id", "contextId": "sessionId"}
        spelled |= {names[name]: message[name] for name in names if name in message}
        configuration = params.get("configuration", {})
        spelled |= {
            name: configuration[name] for name in ("historyLength", "acceptedOutputModes") if name in configuration
        }
        if "taskPushNotificationConfig" in configuration:
            spelled["pushNotification"] = spell_webhook(configuration["taskPushNotificationConfig"])
        return spelled

    def read_message(self, message: Json) -> Json:
        return {"messageId": "", **super().read_message(message)}

    def read_task(self, task: Json) -> Json:
        read = super().read_task({name: value for name, value in task.items() if name != "sessionId"})
        artifacts = [
            {"artifactId": str(number), **{name: value for name, value in artifact.items() if name != "index"}}
            for number, artifact in enumerate(read["artifacts"])
        ]
        return {**read, "contextId": task["sessionId"], "artifacts": artifacts}

    def sent(self, result: Json) -> Task | Message:
        return self.task(result)

    def event(self, event: Json) -> Event:
        update = {"taskId": event["id"], "contextId": "", **self.read_update(event)}
        if "artifact" not in update:
            return model_of(update, StatusUpdate)
        artifact = dict(update["artifact"])
        flags = {name: artifact.pop(name) for name in ("append", "lastChunk") if name in artifact}
        update["artifact"] = {"artifactId": str(artifact.pop("index", 0)), **artifact}
        return model_of({**update, **flags}, ArtifactUpdate)

    def webhook(self, result: Json) -> TaskPushNotificationConfig:
        return read_webhook(result["id"], result["pushNotificationConfig"])
