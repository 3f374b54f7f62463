"""Dependencies of session tasks: the process manager and the list of agents."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from dragoman.clock import SystemClock
from dragoman.compat.sessions.errors import NotFoundError

if TYPE_CHECKING:
    from dragoman.agents.process.manager import ProcessManager
    from dragoman.agents.process.run import CreateSession
    from dragoman.clock import Clock

ListAgents = Callable[[], "Iterable[Any] | Awaitable[Iterable[Any]]"]
_CLOCK = SystemClock()


class ProjectAgent(NamedTuple):
    """An agent with a project, which can take a task."""

    id: str
    name: str
    project_id: str


class TaskDeps:
    """The dependencies of `handle_task_send`.

    `process_manager` has `subscribe` and `start_process`. `list_agents` returns the agents, preferred ones first:
    objects or maps with `id`, `name` and `default_project_id`, in snake_case or camelCase. `create_session` is called
    with each session before its program starts, and may return another one to use instead. Both may be coroutine
    functions; the defaults are methods of `db` with these names, if it has them. `clock` is any clock of the engine.
    """

    def __init__(
        self,
        process_manager: ProcessManager,
        list_agents: ListAgents | None = None,
        *,
        create_session: CreateSession | None = None,
        db: object = None,
        clock: Clock | None = None,
    ) -> None:
        self.process_manager = process_manager
        self.list_agents: ListAgents | None = list_agents or getattr(db, "list_agents", None)
        self.create_session: CreateSession | None = create_session or getattr(db, "create_session", None)
        self.db = db
        self.clock: Clock = clock or _CLOCK

    async def agent_with_project(self) -> ProjectAgent:
        """Return the first agent that has a project.

        Raises:
            NotFoundError: there is none.
        """
        listed: Any = () if self.list_agents is None else self.list_agents()
        agents: Iterable[Any] = await listed if inspect.isawaitable(listed) else listed
        for agent in agents:
            project = member(agent, "default_project_id")
            if project:
                name = str(member(agent, "name") or "agent")
                return ProjectAgent(str(member(agent, "id") or name), name, str(project))
        raise NotFoundError("Agent with default project")


def member(thing: object, name: str) -> Any:
    """Return a member of an object or a map, by its snake_case or camelCase name; None when there is none."""
    first, *rest = name.split("_")
    for spelled in (name, first + "".join(word.capitalize() for word in rest)):
        if isinstance(thing, Mapping):
            value: Any = cast("Mapping[str, Any]", thing).get(spelled)
        else:
            value = getattr(thing, spelled, None)
        if value is not None:
            return value
    return None
