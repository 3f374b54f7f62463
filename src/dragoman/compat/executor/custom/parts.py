"""The parts of the user's own among those that a handler or an agent was given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from dragoman.compat.executor.custom.tasks import CustomTasks, write_through
from dragoman.compat.executor.custom.webhooks import CustomConfigs, CustomSender
from dragoman.compat.executor.task_store import TaskStore
from dragoman.compat.executor.webhooks import PushConfigStore, PushSender
from dragoman.model.error import ConfigError

if TYPE_CHECKING:
    from dragoman.engine.settings import EngineSettings


class CustomParts:
    """The user's task store, push config store and push sender; None where it is one of this package, or not given.

    Raises:
        ConfigError: one of them lacks a method, or the push config store is not the user's own.
    """

    def __init__(self, task_store: object, push_config_store: object, push_sender: object) -> None:
        if isinstance(push_config_store, PushConfigStore):
            raise ConfigError("push_config_store is for one of your own: leave it out for a PushConfigStore")
        self.tasks = CustomTasks(task_store) if _is_custom(task_store, TaskStore) else None
        self.configs = CustomConfigs(push_config_store) if push_config_store is not None else None
        self.sender = CustomSender(push_sender, self.configs) if _is_custom(push_sender, PushSender) else None

    def refine(self, settings: EngineSettings, journal: TaskStore) -> EngineSettings:
        """Return the settings of an engine that uses these parts; `journal` is on the engine's store."""
        if self.tasks is None and self.configs is None:
            return settings
        wrap = write_through(journal, self.tasks, self.configs)
        return structs.replace(settings, wrap_store=wrap, configs=self.configs)


def _is_custom(part: object, base: type[TaskStore | PushSender]) -> bool:
    """True for an object of another class, and of a subclass with methods of its own."""
    if part is None or type(part) is base:
        return False
    names = [name for name in ("get", "save", "delete", "send") if hasattr(base, name)]
    return not isinstance(part, base) or any(getattr(type(part), name) is not getattr(base, name) for name in names)
