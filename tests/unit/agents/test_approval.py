"""What counts as a yes, what as a no, and what as neither."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.agents.pause import Approval, approval_of


@pytest.mark.parametrize("answer", ["yes", "Yes!", " y ", "OK.", "go  ahead", "approved", True, {"approved": True}])
def test_a_yes_approves(answer: Any) -> None:
    assert approval_of(answer) == Approval(True)


@pytest.mark.parametrize("answer", ["no", "No.", "n", "denied", False, {"approved": False}, {"confirmed": False}])
def test_a_no_rejects(answer: Any) -> None:
    assert approval_of(answer) == Approval(False)


@pytest.mark.parametrize("answer", ["No, too expensive", "reject: too expensive", "don\u2019t do it"])
def test_a_no_may_give_its_reason(answer: str) -> None:
    assert approval_of(answer) == Approval(False, answer)


def test_a_reason_may_be_given_in_data() -> None:
    assert approval_of({"approved": False, "message": "too much"}) == Approval(False, "too much")


@pytest.mark.parametrize(
    "answer",
    [
        *("yes, but only half of it", "maybe", "", "nothing", "know", None, 1, [True]),
        *({}, {"approved": "yes"}, {"approved": True, "arguments": {"amount": 1}}, {"approved": False, "message": 3}),
    ],
)
def test_everything_else_is_no_answer(answer: Any) -> None:
    assert approval_of(answer) is None
