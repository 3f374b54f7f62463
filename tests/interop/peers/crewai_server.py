"""CrewAI's own A2A server side: an agent with a scripted model, behind the request handler of a2a-sdk 0.3.

Runs in the environment of tests/interop/peers/crewai.txt:  crewai_server.py [PORT]

CrewAI has the card and what executes a task; the executor that joins them to a server is the user's.
"""

import json
import os
import re
from typing import Any

os.environ.update(CREWAI_DISABLE_TELEMETRY="true", CREWAI_TRACING_ENABLED="false", OTEL_SDK_DISABLED="true")

import framework_script as script
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.apps import A2AStarletteApplication
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore
from crewai import Agent, BaseLLM
from crewai.a2a import A2AServerConfig
from crewai.a2a.utils import task as bridge
from serving import serve

TASK = re.compile(r"Current Task: (.*?)\n\nThis is the expected criteria", re.DOTALL)
STRUCTURED = "\n\nStructured Data:\n"


class Scripted(BaseLLM):
    """A model that plays the script."""

    def supports_multimodal(self) -> bool:
        return True

    def call(self, messages: Any, *rest: Any, **options: Any) -> Any:
        found = TASK.search(messages[-1]["content"])
        assert found, messages
        asked, _, structured = found[1].partition(STRUCTURED)
        first, rest_of_it = script.words(asked)
        match first:
            case "echo":
                return rest_of_it
            case "stream":
                return "".join(script.pieces(int(rest_of_it)))
            case "data":
                return json.dumps(script.DATA)
            case "take":
                lines = [script.taken_data(each) for each in json.loads(structured or "[]")]
                lines += [
                    script.taken_file(file.read(), file.content_type, name)
                    for name, file in (messages[-1].get("files") or {}).items()
                ]
                return "\n".join(lines) or script.NOTHING
            case "fail":
                raise RuntimeError(script.FAILURE)
            case _:
                return script.unknown(asked)

    async def acall(self, *args: Any, **options: Any) -> Any:
        return self.call(*args, **options)


class Executor(AgentExecutor):
    """Their functions, as an executor."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        await bridge.execute(self.agent, context, event_queue)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await bridge.cancel(context, event_queue)


def app_at(url: str) -> Any:
    agent: Any = Agent(
        role=script.NAME,
        goal=script.DESCRIPTION,
        backstory="",
        llm=Scripted(model="scripted"),
        a2a=A2AServerConfig(default_input_modes=["text/plain", "application/json", script.FILE_TYPE]),
    )
    handler = DefaultRequestHandler(agent_executor=Executor(agent), task_store=InMemoryTaskStore())
    return A2AStarletteApplication(agent_card=agent.to_agent_card(url), http_handler=handler).build()


serve(app_at)
