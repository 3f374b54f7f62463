"""The steps of a cluster in which something goes wrong."""

from __future__ import annotations

from collections import deque
from random import Random

from cluster.hooks import Receiver
from cluster.link import CALM, Network, Weather
from cluster.switchboard import Switchboard
from cluster.world import World

MOST_NODES = 5
# How many runs a node may have at a time: any number, a few, or none, when it only accepts messages.
RUN_LIMITS = (None, None, None, 2, 0)
STORMS = (
    Weather(delay=0.05),
    Weather(delay=0.5),
    Weather(refuse=0.1, cut=0.05),
    Weather(swallow=0.15),
    Weather(zombie=0.15),
    Weather(delay=0.1, refuse=0.05, cut=0.05, swallow=0.05, zombie=0.05),
)
# The steps and how frequent they are.
FAULTS: dict[str, float] = {
    "weather": 3,
    "lose_wake_ups": 1,
    "kill": 1,
    "stop": 0.5,
    "start": 0.5,
    "pause": 1,
    "cut_off": 1,
    "restart_database": 0.5,
    "fail_receiver": 1,
}


class FaultSteps:
    """What can happen to the nodes of a cluster, their network and their database."""

    random: Random
    world: World
    network: Network
    board: Switchboard
    receiver: Receiver
    trace: deque[str]

    def weather(self) -> None:
        """The network of a node gets worse, or better."""
        node = self.random.choice(self.living) if self.living else None
        if node is not None:
            weather = self.random.choice((CALM, CALM, *STORMS))
            self.trace.append(f"{self._time()} {node.name} {weather}")
            for link in node.links:
                link.weather = weather

    def lose_wake_ups(self) -> None:
        """Notifications are late or lost for a while, or connections for them are cut."""
        self.board.loss = self.random.choice((0.0, 0.0, 0.1, 0.5, 1.0))
        self.board.delay = self.random.choice((0.004, 0.004, 0.1, 3.0))
        if self.random.random() < 0.3:
            self.board.cut()

    def kill(self) -> None:
        """Kill a node; another one starts, sooner or later."""
        if len(self.living) > 1 or self.random.random() < 0.3:
            node = self.random.choice(self.living) if self.living else None
            if node is not None:
                self.trace.append(f"{self._time()} {node.name} is killed")
                node.kill()
                self.run(0)
        if self.random.random() < 0.7:
            self.start()

    def stop(self) -> None:
        """Stop a node properly, and start another."""
        node = self._any_node()
        if node is not None:
            self.trace.append(f"{self._time()} {node.name} stops")
            node.stop()
        self.start()

    def start(self) -> None:
        """Start a node, unless there are many."""
        if len(self.living) < MOST_NODES:
            self.start_node(self.random.choice(RUN_LIMITS))

    def pause(self) -> None:
        """Stop a node for a while, mostly for longer than its lease; or only its event loop."""
        node = self._any_node()
        if node is not None:
            seconds = self.random.choice((0.5, 5.0, 7.0, 14.0, 30.0))
            freeze = node.freeze if self.random.random() < 0.7 else node.hang
            if self.random.random() < 0.5:  # in the middle of something
                self.tell(node, "once once chunk once slow", agent=self._any_agent())
                self.run(self.random.random() * 0.015)
            self.trace.append(f"{self._time()} {node.name} {freeze.__name__} for {seconds}")
            freeze(stopped=True)
            self.world.after(seconds, lambda: freeze(stopped=False))

    def cut_off(self) -> None:
        """Cut a node off from the database for a while: all of it, or only the connection of its lease."""
        node = self._any_node()
        if node is not None:
            seconds = self.random.choice((0.0, 0.5, 5.0, 10.0, 20.0))
            links = node.links if self.random.random() < 0.6 else (self.random.choice(node.links),)
            self.trace.append(f"{self._time()} {node.name} loses {len(links)} links for {seconds}")
            for link in links:
                link.break_network(seconds)
            if node.bus_link in links:
                self.board.cut(node.bus_link)

    def restart_database(self) -> None:
        """Restart the database at once, or after an outage."""
        seconds = self.random.choice((0.0, 0.2, 1.0, 8.0, 30.0))
        self.trace.append(f"{self._time()} the database is away for {seconds}")
        cut = getattr(self.network.database, "cut", None)
        if cut is not None and self.random.random() < 0.7:
            # The connections to a real database, in the middle of the statements of one moment.
            for _ in range(8):
                moment = self.network.arrival(self.random.random() * 0.03)
                self.world.after(moment, lambda: self.network.backend.execute(cut(), lambda result, error: None))
            return
        self.network.restart(seconds)
        self.board.cut()

    def fail_receiver(self) -> None:
        """The receiver of webhooks fails for a while."""
        self.receiver.down_until = self.world.now + self.random.choice((0.1, 1.0, 5.0))

    def pass_time(self) -> None:
        """Let some time pass."""
        self.run(self.random.choice((0.01, 0.1, 1.0, 3.0, 8.0)))
