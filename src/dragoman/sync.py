"""The same without `await`: for scripts, notebooks and `def` skills."""

from dragoman.agents.sync_context import SyncContext as Context

__all__ = ["Context"]
