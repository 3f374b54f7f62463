"""A receiver of webhooks on a real port of this machine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from support.http_server import RecordingServer, Reply, Request


class Delivery(Request):
    """One webhook that arrived, accepted or not."""

    @property
    def key(self) -> str:
        """Its idempotency key: the same for every try of the same event."""
        return self.headers["idempotency-key"]

    @property
    def task(self) -> str:
        """The task it is about."""
        return self.key.partition("/")[0]

    @property
    def number(self) -> int:
        """The number of the event in its task."""
        return int(self.key.rpartition("/")[2])

    @property
    def state(self) -> str | None:
        """The state it reports, in the words of its version; None for what is no change of a state."""
        body = self.json
        body = body.get("statusUpdate") or body.get("task") or body
        return body["status"]["state"] if "status" in body else None

    @property
    def is_final(self) -> bool:
        """Whether it reports the end of a task."""
        state = (self.state or "").lower().removeprefix("task_state_")
        return state in ("completed", "failed", "canceled", "rejected")


class WebhookReceiver(RecordingServer[Delivery]):
    """Records every delivery in `requests`, and accepts it unless `answer` says otherwise."""

    def __init__(
        self, answer: Reply | Callable[[Delivery], Reply] = 200, *, path: str = "/hook", port: int = 0
    ) -> None:
        super().__init__(Delivery, answer, path=path, port=port)

    @property
    def states(self) -> list[str]:
        """The states that accepted deliveries reported, in their order."""
        return [each.state for each in self.accepted if each.state is not None]

    def wait_final(self, count: int = 1) -> list[Delivery]:
        """Wait until so many ends of tasks have arrived, and return all deliveries.

        Raises:
            AssertionError: they did not arrive in time.
        """
        self.wait_for(lambda: sum(each.is_final for each in self.requests) >= count)
        return list(self.requests)

    def numbers(self) -> dict[str, list[int]]:
        """The numbers of the events that arrived, per task, accepted or not."""
        found: dict[str, list[int]] = defaultdict(list)
        for each in list(self.requests):
            found[each.task].append(each.number)
        return found

    def ended(self) -> set[str]:
        """The tasks whose end arrived."""
        return {each.task for each in list(self.requests) if each.is_final}
