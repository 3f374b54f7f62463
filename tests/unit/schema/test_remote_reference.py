"""A schema cannot make anybody fetch anything."""

from __future__ import annotations

import socket

import pytest

from dragoman.schema.arguments import Problem, Schema


@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef", "$schema", "$id"])
def test_a_remote_reference_is_never_fetched(keyword: str, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/x"
        schema = Schema({keyword: url, "properties": {"a": {keyword: url}, "b": {"items": {"$ref": url + "#/y"}}}})
        for arguments in ({"a": 1.0, "b": [1.0]}, {"b": []}):
            assert schema.problems(arguments) == ()
            assert schema.coerce_integers(arguments) == arguments
        problem = Problem("a", True, "is missing")
        assert "a" in schema.requested_schema([problem])["properties"]
        assert schema.question("t", [problem]) == "`t` needs `a`"
        assert isinstance(schema.example(), dict)
        assert schema.merge_answer({}, [problem], "x", None) == {"a": "x"}
        listening.settimeout(0)
        with pytest.raises(BlockingIOError):  # nobody is waiting to be let in
            listening.accept()
    assert len(caplog.records) == 1


def test_a_remote_reference_leaves_the_arguments_that_do_without_it_to_be_judged() -> None:
    schema = Schema({"properties": {"a": {"$ref": "http://127.0.0.1:9/x"}, "b": {}}, "required": ["b"]})
    assert [problem.path for problem in schema.problems({})] == ["b"]
    assert schema.problems({"a": 1}) == ()
