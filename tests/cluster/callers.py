"""Callers of a simulated cluster: they repeat what was not answered, resume streams, and remember all answers."""

from __future__ import annotations

from typing import Any

from dragoman.engine.call import CallContext
from dragoman.model.message import Message
from dragoman.model.operation import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
)
from dragoman.model.part import Part
from dragoman.model.record import Record
from dragoman.model.state import Role, State
from dragoman.model.task import Task

ANYBODY = CallContext()


class SentMessage:
    """A message that a caller wants to be accepted, once, however often it has to be sent.

    `task_id` is the task that it was accepted for, "" for a bare reply; None while nobody has said so. `refusal` is the
    error that a caller does not try again after. `in_flight` counts requests without an answer.
    """

    def __init__(
        self,
        agent: str,
        message: Message,
        *,
        wait: bool,
        new_task_id: str | None = None,
        webhook: TaskPushNotificationConfig | None = None,
    ) -> None:
        self.agent = agent
        configuration = SendMessageConfiguration(return_immediately=not wait, task_push_notification_config=webhook)
        self.request = SendMessageRequest(message, configuration, new_task_id=new_task_id)
        self.task_id: str | None = None
        self.refusal: Exception | None = None
        self.in_flight = 0
        self.times = 0

    @property
    def id(self) -> str:
        """The id of the message."""
        return self.request.message.message_id

    @property
    def open(self) -> bool:
        """True while the caller has no answer."""
        return self.task_id is None and self.refusal is None

    def __repr__(self) -> str:
        """For failures."""
        return f"message {self.id[:8]} for {self.request.message.task_id or self.request.new_task_id or 'a new task'}"


def new_message(message_id: str, text: str, task_id: str | None = None, context_id: str | None = None) -> Message:
    """A message of a caller."""
    return Message(message_id, Role.USER, (Part(text=text),), context_id, task_id)


class Reader:
    """A caller who follows a task through any number of streams, and checks that each event comes once and in order."""

    def __init__(self, agent: str, task_id: str | None, report: Any) -> None:
        self.agent = agent
        self.task_id = task_id
        self.last = 0
        self.bodies: dict[int, bytes] = {}
        self.finished = False
        self.in_flight = False
        self.node: Any = None
        self.ends_on_input_required = False
        self._report = report

    def receive(self, record: Record) -> None:
        """Take one event of a stream."""
        event = record.event
        if isinstance(event, Message):
            self.finished = True
            return
        if isinstance(event, Task):
            # The task as it is: whatever came before is in it.
            if record.generation < self.last:
                self._report(f"a stream of {self.task_id} begins at {record.generation}, after {self.last} was read")
            self.task_id = event.id
            state = event.status.state
        else:
            if record.generation != self.last + 1:
                self._report(f"a stream of {self.task_id} goes on at {record.generation} after {self.last}")
            self.bodies[record.generation] = record.body
            status = getattr(event, "status", None)
            state = None if status is None else status.state
        self.last = record.generation
        if state is not None and (state.final or (self.ends_on_input_required and state is State.INPUT_REQUIRED)):
            self.finished = True


def cancel_request(task_id: str) -> CancelTaskRequest:
    """CancelTask."""
    return CancelTaskRequest(task_id)


def get_request(task_id: str, generation: int | None = None) -> GetTaskRequest:
    """GetTask; with a generation, it waits for a newer one."""
    return GetTaskRequest(task_id, current_generation=generation)


def list_request(context_id: str | None = None) -> ListTasksRequest:
    """ListTasks."""
    return ListTasksRequest(context_id=context_id, page_size=20)


def subscribe_request(task_id: str) -> SubscribeToTaskRequest:
    """SubscribeToTask."""
    return SubscribeToTaskRequest(task_id)
