"""The guides about MCP list the tools and the table of tasks as the code has them, both ways."""

from __future__ import annotations

import re
from typing import Any

from docs.tables import rows

from dragoman.compat.tool_server.rows import A2A_TASKS, WORDS
from dragoman.mcp.tools.table import TOOLS
from dragoman.model.state import State

HOST, TOOLS_GUIDE = "guides/mcp-host.md", "guides/mcp-tools.md"
WORKING_AND_ENDED = {State.WORKING, *(state for state in State if state.final)}


def type_of(schema: dict[str, Any]) -> str:
    """The type of a value, as the guide spells it: `string[]`, `string or null`."""
    if "anyOf" in schema:
        return " or ".join(type_of(each) for each in schema["anyOf"])
    name: str = schema["type"]
    return f"{type_of(schema['items'])}[]" if name == "array" else name


def members(properties: dict[str, Any]) -> str:
    return ", ".join(f"`{name}` {type_of(schema)}" for name, schema in properties.items())


def test_the_parameters_of_every_tool_are_listed() -> None:
    expected: list[list[str]] = []
    for tool in (each.to_mcp() for each in TOOLS):
        parameters: dict[str, Any] = tool.input_schema["properties"]
        required: list[str] = tool.input_schema.get("required", [])
        expected += [
            [f"`{tool.name}`", f"`{name}`", type_of(schema), "yes" if name in required else "no", schema["description"]]
            for name, schema in parameters.items()
        ] or [[f"`{tool.name}`", "none", "", "", ""]]
    assert rows("tool", "parameter", "type", "required", "description", of=HOST) == expected


def test_the_result_of_every_tool_is_listed() -> None:
    expected: list[list[str]] = []
    for tool in (each.to_mcp() for each in TOOLS):
        assert tool.output_schema is not None
        result: dict[str, Any] = tool.output_schema["properties"]
        required: list[str] = tool.output_schema["required"]
        always = {name: schema for name, schema in result.items() if name in required}
        others = {name: schema for name, schema in result.items() if name not in required}
        expected.append([f"`{tool.name}`", members(always), members(others)])
    assert rows("tool", "result", "and where it applies", of=HOST) == expected


def test_the_columns_of_the_table_of_tasks_are_listed() -> None:
    listed = rows("column of `a2a_tasks`", "type", "", of=TOOLS_GUIDE)
    assert [row[:2] for row in listed] == [[f"`{each.name}`", f"`{each.type}`"] for each in A2A_TASKS.columns]
    assert len(listed) == 6
    texts = {name.strip("`"): text for name, _, text in listed}
    assert [name for name, text in texts.items() if "primary key" in text] == [A2A_TASKS.columns[0].name]
    assert {name for name, text in texts.items() if "never null" in text} == {
        each.name for each in A2A_TASKS.columns if each.required
    }
    assert {name for name, text in texts.items() if "indexed" in text} == {each for _, each in A2A_TASKS.indexes}
    assert [name for name, text in texts.items() if "optimistic locking" in text] == [A2A_TASKS.version]


def test_the_states_of_the_table_of_tasks_are_listed() -> None:
    assert set(WORDS) == WORKING_AND_ENDED
    [state] = [row[2] for row in rows("column of `a2a_tasks`", "type", "", of=TOOLS_GUIDE) if row[0] == "`state`"]
    assert re.findall(r"`(\w+)`", state) == list(dict.fromkeys(WORDS.values()))
