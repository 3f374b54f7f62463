"""`ADKExecutor`: an agent of Google ADK as an executor."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dragoman.agents.adk.run import plain_session_id, runner_of
from dragoman.compat.executor.adk.converter import Converter
from dragoman.compat.executor.bridge import AgentExecutor
from dragoman.compat.executor.ids import new_id
from dragoman.compat.executor.types import (
    Artifact,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)

if TYPE_CHECKING:
    from google.adk.sessions.session import Session

    from dragoman.compat.executor.bridge import RequestContext


class ADKExecutor(AgentExecutor):
    """Runs an ADK agent on every message, in the session of its context.

    It enqueues the status `working`, the content of each event as a piece of one artifact, the end of that artifact,
    then the final status. The task fails when an event has an error, waits for the caller when one has
    `long_running_tool_ids` or escalates, and is completed otherwise. Partial events are left out. `Agent.from_adk` does
    more: it streams, and it resumes tools that wait with the caller's answer.

    Raises:
        ConfigError: the runner is nothing that ADK runs, or has another app name.
    """

    @dataclass(frozen=True, slots=True)
    class Config:
        """What is run: a Runner, or an agent or App whose sessions are kept in memory, under `app_name`."""

        runner: object
        app_name: str | None = None

    def __init__(self, config: Config) -> None:
        self.runner = runner_of(config.runner, config.app_name)

    async def execute(self, context: RequestContext, task_id: str) -> None:
        """Run the agent on the message. Raises what the agent raises."""
        session = await self._session(context.context_id)
        await self._report(context, TaskStatus(TaskState.WORKING))
        artifact_id, has_artifact = new_id(), False
        status: TaskStatus | None = None
        message = Converter.message_to_adk(context.message)
        run = self.runner.run_async(user_id=session.user_id, session_id=session.id, new_message=message)
        async with aclosing(run) as events:
            async for event in events:
                found = Converter.status_from_adk(event)
                if status is None or status.state is not TaskState.FAILED:
                    status = found or status
                artifact = None if event.partial else Converter.artifact_from_adk(event, artifact_id)
                if artifact is not None:
                    await self._add(context, artifact, append=has_artifact)
                    has_artifact = True
        if has_artifact:
            await self._add(context, Artifact(artifact_id, ()), append=True, last_chunk=True)
        await self._report(context, status or TaskStatus(TaskState.COMPLETED), final=True)

    async def cancel(self, context: RequestContext, task_id: str) -> None:
        """Report that the task is canceled; the handler stops the run itself."""
        await self._report(context, TaskStatus(TaskState.CANCELED), final=True)

    async def _session(self, context_id: str) -> Session:
        service, app = self.runner.session_service, self.runner.app_name
        name = plain_session_id(context_id)
        user = f"a2a_user_{name}"
        existing = await service.get_session(app_name=app, user_id=user, session_id=name)
        return existing or await service.create_session(app_name=app, user_id=user, session_id=name)

    async def _report(self, context: RequestContext, status: TaskStatus, *, final: bool = False) -> None:
        await context.queue.enqueue(TaskStatusUpdateEvent(context.task_id, context.context_id, status, final))

    async def _add(
        self, context: RequestContext, artifact: Artifact, *, append: bool, last_chunk: bool = False
    ) -> None:
        update = TaskArtifactUpdateEvent(context.task_id, context.context_id, artifact, append, last_chunk)
        await context.queue.enqueue(update)
