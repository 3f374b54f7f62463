"""server-everything: every kind of content, links, questions, and a tool that needs tasks of MCP."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

from .server import McpServer, node
from .step import Answer, Step, without

NAME = "@modelcontextprotocol/server-everything"
PERSON = {
    "name": "Ada Lovelace",
    "check": True,
    "email": "ada@example.com",
    "birthdate": "1815-12-10",
    "integer": 7,
    "number": 2.5,
    "untitledMultipleSelectEnum": ["Piano", "Bass"],
}
FORM = "trigger-elicitation-request"
URL = "trigger-url-elicitation"
LONG = "trigger-long-running-operation"
TASK = "simulate-research-query"
URL_ARGUMENTS = {"url": "https://example.com/consent", "message": "Please agree.", "elicitationId": "agree-1"}

made_now = without(r"\d{1,2}:\d\d:\d\d( [AP]M)?")
session = without(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def steps(here: Path) -> list[Step]:
    poem = "data:text/plain;base64," + base64.b64encode(b"roses are red\n" * 20).decode()
    return [
        Step("echo", {"message": "naïve — ☃ \U0001f600\n"}),
        Step("get-annotated-message", {"messageType": "error", "includeImage": True}),
        Step("get-annotated-message", {"messageType": "success"}),
        Step("get-annotated-message", {"messageType": "debug", "includeImage": False}),
        Step("get-env"),
        Step("get-resource-links", {"count": 4}, made_now),
        Step("get-resource-reference", {"resourceType": "Text", "resourceId": 2}, made_now),
        Step("get-resource-reference", {"resourceType": "Blob", "resourceId": 3}, made_now),
        Step("get-resource-reference", {"resourceType": "Text", "resourceId": -1}),
        Step("get-structured-content", {"location": "Chicago"}),
        Step("get-sum", {"a": 2, "b": 0.5}),
        Step("get-tiny-image"),
        Step("gzip-file-as-resource", {"name": "poem.gz", "data": poem, "outputType": "resource"}),
        Step("gzip-file-as-resource", {"name": "link.gz", "data": poem, "outputType": "resourceLink"}),
        Step("gzip-file-as-resource", {"name": "no.gz", "data": "ftp://example.com/no", "outputType": "resource"}),
        Step("toggle-simulated-logging", view=session),
        Step("toggle-simulated-logging", view=session),
        Step("toggle-subscriber-updates", view=session),
        Step("toggle-subscriber-updates", view=session),
        Step(LONG, {"duration": 0.1, "steps": 2}),
        Step(TASK, {"topic": "python"}),
        Step(FORM, answers=(Answer("accept", PERSON),)),
        Step(FORM, answers=(Answer("decline"),)),
        Step(FORM, answers=(Answer("cancel"),)),
        Step(URL, URL_ARGUMENTS, answers=(Answer("accept"),)),
        Step(URL, URL_ARGUMENTS, answers=(Answer("decline"),)),
    ]


def over_http(here: Path) -> list[str | Path]:
    return [*node("server-everything"), "streamableHttp"]


SERVER = McpServer(NAME, "mcp-js", lambda here: node("server-everything"), steps)
OVER_HTTP = replace(SERVER, program=over_http, transport="streamable HTTP")
