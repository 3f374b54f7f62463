"""The other nodes of a database, and whether their settings fit those of this one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dragoman.stores.postgres.database import NodeInfo, Peer


class PeerCheck:
    """Checks each other node once, when it has renewed its lease: one that has only left its row behind may differ."""

    def __init__(self, info: NodeInfo) -> None:
        self._info = info
        self._beats: dict[int, int | None] = {}  # the first beat that was seen; None once the node was checked

    def check(self, peers: Iterable[Peer]) -> Iterator[str]:
        """Take the result of a poll, and yield what is wrong and what to do."""
        before, self._beats = self._beats, {}
        for peer in peers:
            first = self._beats[peer.id] = before.get(peer.id, peer.beat)
            if first is not None and first != peer.beat:
                self._beats[peer.id] = None
                yield from self._check(peer)

    def _check(self, peer: Peer) -> Iterator[str]:
        # Without agents it is a front, or about to stop: it begins no conversation.
        if peer.agents and peer.name == self._info.name:
            yield (
                f"another node is called {peer.name} too: give each a name of its own with --node, because "
                "conversations of programs belong to a name"
            )
        if peer.keys and self._info.keys and peer.keys[0] not in self._info.keys:
            yield (
                f"the node {peer.name} has another secret: this one cannot read the cookies and the credentials of "
                "webhooks that it encrypts; set the same DRAGOMAN_SECRET on all nodes"
            )
