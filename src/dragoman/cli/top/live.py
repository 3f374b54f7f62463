"""The live view: reads the metrics on a thread, draws on the main one, and does what keys say."""

from __future__ import annotations

import queue
import threading
import time

from dragoman.cli.top.scrape import Scrape, Scraper
from dragoman.cli.top.screen import Screen
from dragoman.cli.top.snapshot import History, Snapshot, take_snapshot
from dragoman.cli.top.sorting import SORTS
from dragoman.cli.top.view import View, ViewState, has_unicode
from dragoman.model.error import BadResponse, CannotConnect, DragomanError

_FIRST_SECONDS = 0.5


def watch(scraper: Scraper, history: History, state: ViewState, interval: float) -> None:
    """Show the server until the user quits. `history` has a first look at it."""
    view = View(unicode=has_unicode())
    with Screen() as screen:
        poller = _Poller(scraper, interval, screen)
        try:
            _Loop(screen, view, poller, history, state).run()
        except EOFError:
            return
        finally:
            poller.stop()


class _Poller:
    """Reads the metrics again and again, on a thread of its own: keys are answered while a server does not."""

    def __init__(self, scraper: Scraper, interval: float, screen: Screen) -> None:
        self.results: queue.SimpleQueue[Scrape | DragomanError] = queue.SimpleQueue()
        self._scraper = scraper
        self._interval = interval
        self._screen = screen
        self._stopped = threading.Event()
        threading.Thread(target=self._run, name="dragoman-top", daemon=True).start()

    def stop(self) -> None:
        """End; a request that is under way is not waited for."""
        self._stopped.set()

    def _run(self) -> None:
        # There are no rates before the second look.
        due = time.monotonic() + min(self._interval, _FIRST_SECONDS)
        while not self._stopped.wait(max(0.0, due - time.monotonic())):
            try:
                self.results.put(self._scraper.scrape())
            except (CannotConnect, BadResponse) as error:
                self.results.put(error)
            self._screen.wake()
            # A server that is slow is not asked more often for it.
            due = max(due + self._interval, time.monotonic())
        self._scraper.close()


class _Loop:
    """Draws what has come, and does what keys say."""

    def __init__(self, screen: Screen, view: View, poller: _Poller, history: History, state: ViewState) -> None:
        self._screen = screen
        self._view = view
        self._poller = poller
        self._history = history
        self._state: ViewState = state
        self._snapshot: Snapshot | None = None
        self._lost_at = 0.0

    def run(self) -> None:
        """Return when the user quits."""
        while True:
            has_news = self._take_results()
            if self._snapshot is None or (has_news and not self._state.paused):
                self._snapshot = take_snapshot(self._history)
            if self._state.lost:
                self._state = self._state._replace(lost_for=time.monotonic() - self._lost_at)
            self._draw(self._snapshot)
            for key in self._screen.wait(None):
                if key in "qQ\x04":
                    return
                self._press(key)

    def _take_results(self) -> bool:
        has_news = False
        while not self._poller.results.empty():
            result = self._poller.results.get()
            if isinstance(result, DragomanError):
                if not self._state.lost:
                    self._lost_at = time.monotonic()
                self._state = self._state._replace(lost=str(result))
            else:
                self._history.add(result)
                self._state = self._state._replace(lost="", lost_for=0.0)
                has_news = True
        return has_news

    def _press(self, key: str) -> None:
        state = self._state
        if state.shows_help:
            self._state = state._replace(shows_help=False)
        elif key == "p":
            self._state = state._replace(paused=not state.paused)
        elif key == "s":
            self._state = state._replace(sort=SORTS[(SORTS.index(state.sort) + 1) % len(SORTS)])
        elif key in "?h":
            self._state = state._replace(shows_help=True)

    def _draw(self, snapshot: Snapshot) -> None:
        columns, rows = self._screen.size
        self._screen.draw(self._view.styled(self._view.lines(snapshot, self._state, columns, rows)))
