"""A skill that blocks the event loop is named; whatever else makes the loop late is not blamed on anybody."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

pytestmark = pytest.mark.fault

AGENT = Path(__file__).with_name("stall_agent.py")
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture
def served(launch: Callable[..., Any]) -> Any:
    """A server with metrics and JSON logs."""
    return launch("--log", "json", "--metrics", "0", agent=AGENT)


def lines(server: Any, logger: str) -> list[dict[str, Any]]:
    """What that logger has written."""
    records = [json.loads(line) for line in server.output if line.startswith("{")]
    return [record for record in records if record["logger"] == logger]


def stalls(server: Any) -> dict[tuple[str, str], float]:
    """How often the metric says that each skill of each agent has blocked the loop."""
    url = next(found[1] for line in server.output if (found := re.match(r"\s+metrics\s+(http://\S+)", line)))
    pattern = r'^dragoman_loop_stalls_total\{dragoman_skill="(.*)",gen_ai_agent_name="(.*)"\} (\S+)$'
    return {(agent, skill): float(count) for skill, agent, count in re.findall(pattern, httpx2.get(url).text, re.M)}


def test_a_skill_that_blocks_the_loop_is_named_with_its_stack_in_log_and_metric(served: Any) -> None:
    task = served.send("doze", "hi")
    served.until("the event loop was blocked")
    first, last = lines(served, "dragoman.loop")
    assert first["level"] == last["level"] == "warning"
    for line in (first, last):
        assert (line["agent"], line["skill"], line["task"]) == ("blocky", "doze", task["id"])
    assert "by skill `doze` of agent `blocky`" in first["message"]
    assert 0.2 <= first["seconds"] < last["seconds"] <= 5
    assert last["seconds"] > 0.5
    assert "stall_agent.py" in first["stack"]
    assert "time.sleep(1)" in first["stack"].splitlines()[-1]
    assert "stack" not in last
    assert stalls(served) == {("blocky", "doze"): 1}


def test_a_task_that_a_skill_has_started_is_its_own(served: Any) -> None:
    task = served.send("doze_in_task", "hi")
    served.until("the event loop was blocked")
    assert {(line["skill"], line["task"]) for line in lines(served, "dragoman.loop")} == {("doze_in_task", task["id"])}


def test_code_that_keeps_the_interpreter_to_itself_is_found(served: Any) -> None:
    served.send("match", "hi")
    served.until("the event loop was blocked")
    first, last = lines(served, "dragoman.loop")[-2:]
    assert first["skill"] == last["skill"] == "match"
    assert "re.match(" in first["stack"]


def test_a_thread_that_computes_blocks_nobody(served: Any) -> None:
    assert served.send("compute", "hi")["status"]["state"] == "TASK_STATE_COMPLETED"
    served.send("doze", "hi", message_id="m2")
    served.until("the event loop was blocked")
    assert {line.get("skill") or line["message"] for line in lines(served, "dragoman.loop")} == {"doze"}


def test_a_process_that_was_stopped_has_not_blocked_its_loop(served: Any) -> None:
    served.send("log", "hi")
    served.process.send_signal(signal.SIGSTOP)
    with pytest.raises(httpx2.TimeoutException):
        httpx2.get(f"{served.url}/healthz", timeout=1.5)
    served.process.send_signal(signal.SIGCONT)
    served.send("doze", "hi", message_id="m2")
    served.until("the event loop was blocked")
    assert {line.get("skill") or line["message"] for line in lines(served, "dragoman.loop")} == {"doze"}
    assert stalls(served) == {("blocky", "doze"): 1}


def test_of_a_skill_that_blocks_again_and_again_a_few_stacks_are_logged_and_all_are_counted(served: Any) -> None:
    for number in range(5):
        served.send("nod", "hi", message_id=f"m{number}")
    assert stalls(served)["blocky", "nod"] >= 4  # the last may not be counted yet
    stacks = [line for line in lines(served, "dragoman.loop") if "stack" in line]
    assert len(stacks) == 3


def test_every_line_of_a_run_says_what_it_is_about(served: Any) -> None:
    headers = {"A2A-Version": "1.0", "traceparent": f"00-{TRACE}-{SPAN}-01"}
    tasks = [
        served.post("SendMessage", served.params(skill, "hi", message_id=skill, contextId="c-1"), **headers).json()
        for skill in ("log", "log_in_thread")
    ]
    ids = [answer["result"]["task"]["id"] for answer in tasks]
    served.until(f'"task": "{ids[1]}", "context": "c-1", "address": "127.0.0.1", "state"')
    common = {"trace_id": TRACE, "span_id": SPAN, "agent": "blocky", "context": "c-1", "address": "127.0.0.1"}
    written = [*lines(served, "mine"), *lines(served, "dragoman.agent"), *lines(served, "dragoman.task")]
    assert all(line.items() >= common.items() for line in written)
    found = {(line["message"], line["skill"], line["task"]) for line in written if line["logger"] != "dragoman.task"}
    of_log = ("mine", "of the context", "of a task", "of a thread", "broken")
    assert found == {
        *((message, "log", ids[0]) for message in of_log),
        ("with a field", "log", "my own"),
        ("of a def", "log_in_thread", ids[1]),
    }
    (own,) = (line for line in written if line["message"] == "with a field")
    assert own["order"] == 4711
    (broken,) = (line for line in written if line["message"] == "broken")
    assert broken["exception"].endswith("ValueError: wrong")
