"""A real Prometheus for tests: reads the metrics of servers every second, and answers what a dashboard asks."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml
from support.deployed import ALERTS, DEPLOY
from support.ports import free_port

FOLDER = Path(__file__).parents[2] / ".peers" / "prometheus"
ABSENT = "there is no Prometheus: install Go 1.26 for `make interop`, or your system's package `prometheus`"
SECONDS = 30
# What Grafana makes of `$__rate_interval` is at least four times the interval of scrapes.
INTERVAL, RATE_INTERVAL = "1s", "5s"


def find_program(name: str) -> str | None:
    """The path of `prometheus` or `promtool`: that of `make interop`, else that of this machine."""
    built = FOLDER / name
    return str(built) if built.exists() else shutil.which(name)


def promtool(*words: str, given: bytes | None = None) -> str:
    """Run promtool in the folder of the rules, and return what it prints. Raises AssertionError when it complains."""
    command = [find_program("promtool") or "promtool", *words]
    output = subprocess.PIPE
    done = subprocess.run(
        command, input=given, stdout=output, stderr=subprocess.STDOUT, cwd=ALERTS.parent, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout.decode()
    return done.stdout.decode()


def read(url: str) -> bytes:
    """Return what is at an address."""
    with urlopen(url, timeout=SECONDS) as response:
        return response.read()


class Series(NamedTuple):
    """A line of a panel: its labels, when it begins, and its values, one for each second at which it has one."""

    labels: dict[str, str]
    begins: float
    values: list[float]


class PrometheusServer:
    """A Prometheus that runs, as its HTTP API shows it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._started = time.time()

    def series(self, expr: str) -> list[Series]:
        """Return what an expression was, second by second, since the beginning; what is no number is left out."""
        data = self._get("query_range", query=expr, start=self._started, end=time.time(), step="1s")
        found: list[Series] = []
        for each in data["result"]:
            values = [(at, value) for at, text in each["values"] if math.isfinite(value := float(text))]
            if values:
                found.append(Series(each["metric"], values[0][0], [value for _, value in values]))
        return found

    def alerts(self) -> list[dict[str, str]]:
        """Return the labels of the alerts that fire."""
        return [each["labels"] for each in self._get("alerts")["alerts"] if each["state"] == "firing"]

    def targets(self) -> dict[str, str]:
        """Return the health of each target that is scraped."""
        return {each["labels"]["instance"]: each["health"] for each in self._get("targets")["activeTargets"]}

    def is_ready(self) -> bool:
        """Whether it answers."""
        try:
            with urlopen(f"{self._url}/-/ready") as response:
                return response.status == 200
        except URLError:
            return False

    def _get(self, path: str, **query: object) -> Any:
        with urlopen(f"{self._url}/api/v1/{path}?{urlencode(query)}", timeout=SECONDS) as response:
            return json.load(response)["data"]


def until(condition: Callable[[], Any], what: str, seconds: float = SECONDS) -> Any:
    """Ask until the answer is yes, for a bounded time, and return the answer."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.1)
    raise TimeoutError(f"{what}: not within {seconds:g} seconds")


@contextmanager
def running_prometheus(folder: Path, targets: Sequence[str]) -> Iterator[PrometheusServer]:
    """Run Prometheus with the configuration of `deploy/`, for these targets, and with everything once a second."""
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))
    config["global"] = {"scrape_interval": INTERVAL, "evaluation_interval": INTERVAL}
    config["rule_files"] = [str(ALERTS)]
    config["scrape_configs"][0]["static_configs"][0]["targets"] = [*targets]
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    address = f"127.0.0.1:{free_port()}"
    flags = {"config.file": file, "storage.tsdb.path": folder / "data", "web.listen-address": address}
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [find_program("prometheus") or "prometheus", *(f"--{name}={value}" for name, value in flags.items())],
            stdout=log,
            stderr=log,
            cwd=folder,
        )
        try:
            server = PrometheusServer(f"http://{address}")
            until(lambda: server.is_ready() or process.poll() is not None, "Prometheus is ready")
            assert process.poll() is None, (folder / "prometheus.log").read_text(encoding="utf-8")
            yield server
        finally:
            process.terminate()
            process.wait(SECONDS)
