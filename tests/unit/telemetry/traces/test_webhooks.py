"""The spans of deliveries to webhooks."""

from __future__ import annotations

from support.otlp_collector import SpanMemory
from support.webhook_receiver import WebhookReceiver

from dragoman import Agent, Client
from dragoman.testing import served

COMPLETED = "TASK_STATE_COMPLETED"
agent = Agent("trip")


@agent.skill
async def book(city: str) -> str:
    return f"booked {city}"


async def test_each_delivery_is_a_trace_of_its_own_linked_to_that_of_its_task(spans: SpanMemory) -> None:
    with WebhookReceiver() as receiver, served(agent, push_allow="127.0.0.1") as url:
        async with Client(url) as client:
            task = await client.send(tool="book", arguments={"city": "Rome"}, push=receiver.url)
            await receiver.until(lambda: COMPLETED in receiver.states)
            await spans.wait(lambda: len(spans.named("deliver webhook")) == len(receiver.accepted))
    created = next(span for span in spans.spans if span.kind == "SERVER")
    deliveries = spans.named("deliver webhook")
    assert [span.traceparent[:53] for span in deliveries] == [
        each.headers["traceparent"][:53] for each in receiver.requests
    ]
    assert len(deliveries) == len(receiver.accepted) > 1
    for span in deliveries:
        assert (span.kind, span.parent_id, span.links) == ("PRODUCER", "", ((created.trace_id, created.span_id),))
        assert span.attributes == {
            "a2a.task.id": task.id,
            "gen_ai.agent.name": "trip",
            "gen_ai.conversation.id": task.context_id,
            "server.address": "127.0.0.1",
            "http.response.status_code": 200,
        }
    assert len({span.trace_id for span in deliveries} | {created.trace_id}) == len(deliveries) + 1


async def test_a_delivery_that_fails_says_how(spans: SpanMemory) -> None:
    with WebhookReceiver(410) as receiver, served(agent, push_allow="127.0.0.1") as url:
        async with Client(url) as client:
            await client.send(tool="book", arguments={"city": "Rome"}, push=receiver.url)
            await spans.wait(lambda: bool(spans.named("deliver webhook")))
    failed = spans.one("deliver webhook")
    assert (failed.failed, failed.attributes["error.type"]) == (True, "410")


async def test_without_opentelemetry_a_webhook_gets_no_context() -> None:
    with WebhookReceiver() as receiver, served(agent, push_allow="127.0.0.1") as url:
        async with Client(url) as client:
            await client.send(tool="book", arguments={"city": "Rome"}, push=receiver.url)
            await receiver.until(lambda: COMPLETED in receiver.states)
    assert not any("traceparent" in each.headers for each in receiver.requests)
