"""A crew whose agent delegates to a remote agent: CrewAI's own A2A client.

Runs in the environment of tests/interop/peers/crewai.txt:  crewai_client.py URL [CASE …]

By itself CrewAI gives what a remote agent has answered to its model, which writes the answer of the crew. With
`trust_remote_completion_status` the answer of the remote agent is that of the crew.
"""

import atexit
import json
import os
import shutil
import tempfile
from typing import Any

os.environ.update(
    CREWAI_DISABLE_TELEMETRY="true",
    CREWAI_TRACING_ENABLED="false",
    OTEL_SDK_DISABLED="true",
    XDG_DATA_HOME=tempfile.mkdtemp(),  # CrewAI keeps what its crews have answered
)

import framework_script as script
from conversing import case, converse
from crewai import Agent, BaseLLM, Crew, Task
from crewai.a2a import A2AClientConfig
from crewai.a2a.auth import BearerTokenAuth
from crewai.a2a.updates import PollingConfig, StreamingConfig
from crewai.events import crewai_event_bus
from crewai.events.types.a2a_events import A2ADelegationCompletedEvent
from crewai_files import File, FileBytes
from pydantic import Field

ENOUGH = "enough"
CONVERSATION = "<PREVIOUS_A2A_CONVERSATION>"
AGENT = '"role": "agent"'

delegations: list[A2ADelegationCompletedEvent] = []


@crewai_event_bus.on(A2ADelegationCompletedEvent)
def remember(_: Any, event: A2ADelegationCompletedEvent) -> None:
    delegations.append(event)


class Scripted(BaseLLM):
    """A model that says these to the remote agent, one after the other, and then that it is enough."""

    says: list[str]
    seen: list[str] = Field(default_factory=list)
    """What it was shown of the conversation, at each call."""

    def call(self, messages: Any, *rest: Any, **options: Any) -> str:
        self.seen.append(messages[-1]["content"].partition(CONVERSATION)[2])
        done = len(self.seen) > len(self.says)
        message = ENOUGH if done else self.says[len(self.seen) - 1]
        return json.dumps({"a2a_ids": [], "message": message, "is_a2a": not done})

    async def acall(self, *args: Any, **options: Any) -> str:
        return self.call(*args, **options)


async def crew(
    url: str,
    *says: str,
    polled: bool = False,
    trusting: bool = True,
    files: dict[str, Any] | None = None,
    **config: Any,
) -> tuple[str, list[str]]:
    """What the crew answers, and what its model was shown of the conversation."""
    delegations.clear()
    model = Scripted(model="scripted", says=list(says))
    remote = A2AClientConfig(
        endpoint=url,
        trust_remote_completion_status=trusting,
        updates=PollingConfig(interval=0.01) if polled else StreamingConfig(),
        **config,
    )
    agent = Agent(role="near", goal="Delegate", backstory="", llm=model, a2a=remote)
    task = Task(description="Ask the remote agent", expected_output="Its answer", agent=agent, input_files=files or {})
    answer = await Crew(agents=[agent], tasks=[task]).akickoff()
    crewai_event_bus.flush()
    return answer.raw, model.seen[1:]


@case
async def text(url: str) -> str:
    answer, _ = await crew(url, f"echo {script.ECHO}", polled=True)
    return answer


@case
async def stream(url: str) -> dict[str, Any]:
    answer, _ = await crew(url, f"stream {script.PIECES}")
    return {"answer": answer, "pieces": []}


@case
async def talk(url: str) -> list[str | None]:
    await crew(url, *(f"echo {word}" for word in script.WORDS), trusting=False)
    return [each.result for each in delegations]


@case
async def ask(url: str) -> dict[str, Any]:
    answer, [seen] = await crew(url, "ask", script.USER)
    return {"question": script.QUESTION if script.QUESTION in seen else seen, "answer": answer}


@case
async def failure(url: str) -> str:
    await crew(url, "fail")
    [failed] = delegations
    raise RuntimeError(f"{failed.status} {failed.error}")


@case
async def file(url: str) -> dict[str, Any]:
    image = File(source=FileBytes(data=script.FILE, filename=script.FILE_NAME))
    answer, _ = await crew(url, "take", files={"dragon": image})
    return {"sent": answer, "received": await nothing(url, "file")}


@case
async def data(url: str) -> dict[str, Any]:
    return {"received": await nothing(url, "data")}


async def nothing(url: str, words: str) -> str:
    try:
        answer, _ = await crew(url, words)
    except ValueError as error:  # a crew without an answer
        return str(error)
    return answer


# What other tests ask for.


@case
async def data_for_text_alone(url: str) -> str:
    answer, _ = await crew(url, "data", accepted_output_modes=["text/plain"])
    return answer


@case
async def polled_question(url: str) -> dict[str, Any]:
    answer, [seen] = await crew(url, "ask", script.USER, polled=True)
    return {"seen": script.QUESTION in seen, "answer": answer}


@case
async def progress(url: str) -> list[str]:
    return [(await crew(url, f"progress {script.ECHO}", polled=polled))[0] for polled in (False, True)]


@case
async def untrusted(url: str) -> dict[str, Any]:
    _, [seen] = await crew(url, f"echo {script.ECHO}", trusting=False)
    return {"seen": AGENT in seen, "answer": delegations[0].result}


@case
async def untrusted_message(url: str) -> dict[str, Any]:
    # Of an agent that is not at the root CrewAI wants the address of its card.
    return await untrusted(f"{url}/agents/replying/.well-known/agent-card.json")


@case
async def token(_: str) -> str:
    url, key = os.environ["GUARDED"].split()
    answer, _ = await crew(url, f"echo {script.ECHO}", auth=BearerTokenAuth(token=key))
    return answer


@case
async def long(url: str) -> str:
    answer, _ = await crew(url, f"stream {script.MANY}")
    return answer


atexit.register(shutil.rmtree, os.environ["XDG_DATA_HOME"])
converse()
