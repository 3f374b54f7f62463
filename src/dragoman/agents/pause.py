"""Pauses of a run: pending questions, the answers so far, and how an approval is parsed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import Struct

from dragoman.engine.execute.outputs import Ask
from dragoman.engine.journal.replay import AnsweredQuestion
from dragoman.model.error import Failed

if TYPE_CHECKING:
    from dragoman.engine.execute.context import Context

_YES = frozenset({"yes", "y", "ok", "okay", "sure", "true", "approve", "approved", "confirm", "confirmed", "go ahead"})
_NO = frozenset({"no", "n", "nope", "false", "reject", "rejected", "deny", "denied", "decline", "declined", "don't"})
_KEYS = frozenset({"approved", "confirmed", "message"})


class Approval(Struct, frozen=True):
    """An approval or a refusal; a refusal may have a reason as its `message`."""

    approved: bool
    message: str | None = None


def approval_of(answer: Any) -> Approval | None:
    """Parse an approval or a refusal; return None if the answer is neither.

    Accepts a bool, an object such as `{"approved": false, "message": "too much"}`, or text. Text approves only if it
    says nothing else: "yes, but only half of it" does not approve the call in question. A refusal may continue, and the
    whole text is its reason.
    """
    if isinstance(answer, bool):
        return Approval(answer)
    if isinstance(answer, dict):
        return _approval_from_data(cast("dict[str, Any]", answer))
    if not isinstance(answer, str):
        return None
    words = " ".join(answer.casefold().replace("\u2019", "'").split()).strip(" .!")
    if words in _YES:
        return Approval(True)
    if words in _NO:
        return Approval(False)
    return Approval(False, answer.strip()) if re.split(r"[^\w']", words, maxsplit=1)[0] in _NO else None


def _approval_from_data(answer: dict[str, Any]) -> Approval | None:
    verdict = answer.get("approved", answer.get("confirmed"))
    message = answer.get("message")
    # Other keys, such as edited arguments, would be ignored, so the answer counts as unreadable.
    if not isinstance(verdict, bool) or not answer.keys() <= _KEYS or not isinstance(message, str | None):
        return None
    return Approval(verdict, None if verdict else message)


YES_OR_NO = "Please answer yes or no."
TEXT_OR_DATA = "Please answer with a text or with data."
# A question shows at most this much of a call's arguments; the details have all of them.
_MAX_ARGUMENTS = 200


class Pending(Struct, frozen=True, omit_defaults=True):
    """One question that a run waits for: for an approval, or else for any value.

    `details` is the machine-readable form, sent next to the question. `reason` says that the value may be a refusal,
    which then gets the comment of the answer as its reason.
    """

    id: str
    question: str
    details: Any = msgspec.field(default=None, name="shown")
    approval: bool = False
    reason: bool = False


class Pause(Struct, frozen=True, omit_defaults=True):
    """All questions of a paused run and the answers so far; serialized to JSON and stored as the `ref` of the question.

    Questions are asked one at a time, so that a plain "yes" refers to one thing; a data part may answer several at
    once, by their ids. `state` is what the framework needs to resume. It is written again with every question, so large
    state is stored once with `save_state` and only its name is kept here.
    """

    pending: tuple[Pending, ...]
    state: Any = msgspec.field(default=None, name="held")
    answers: dict[str, Any] = {}
    remark: str = ""

    @property
    def open(self) -> tuple[Pending, ...]:
        """The questions that have no answer yet."""
        return tuple(one for one in self.pending if one.id not in self.answers)

    def ask(self) -> Ask:
        """Return the first open question, with the details of all open ones."""
        first = self.open[0]
        question = f"{first.question} {self.remark}".strip()
        return Ask(
            question, ref=msgspec.to_builtins(self), details=tuple(one.details for one in self.open if one.details)
        )

    def with_answer(self, answer: Any, comment: str = "") -> Pause:
        """Return the pause with one more answer; an answer that cannot be parsed is asked for again.

        `comment` is text that came with a data part: it becomes the reason of every refusal that has none.
        """
        waiting = self.open
        by_id = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
        # Programs may resend all answers: the first answer to each question stays.
        if not by_id or not by_id.keys() <= {one.id for one in self.pending}:
            by_id = {waiting[0].id: cast("Any", answer)}
        addressed = [one for one in waiting if one.id in by_id]
        unparsed = {one.id for one in addressed if one.approval and approval_of(by_id[one.id]) is None}
        parsed = {one.id: _with_reason(one, by_id[one.id], comment) for one in addressed if one.id not in unparsed}
        return Pause(self.pending, self.state, {**self.answers, **parsed}, YES_OR_NO if unparsed else "")

    def without_answer(self, id: str, remark: str) -> Pause:
        """Return the pause without the answer to one question, which is asked again with a remark."""
        answers = {other: value for other, value in self.answers.items() if other != id}
        return Pause(self.pending, self.state, answers, remark)


def _with_reason(one: Pending, answer: Any, comment: str) -> Any:
    approval = approval_of(answer) if comment.strip() and (one.approval or one.reason) else None
    if approval is None or approval.approved or approval.message:
        return answer
    return {"approved": False, "message": comment.strip()}


def pause_of(resume: AnsweredQuestion | None) -> Pause | None:
    """Return the pause that this run resumes from, with the answer that resumed it; None in a first run."""
    if resume is None:
        return None
    pause = msgspec.convert(resume.ref, Pause)
    if resume.data is not None:
        return pause.with_answer(resume.data, resume.text)
    if not resume.text.strip():
        # For example, a message with only a file.
        return Pause(pause.pending, pause.state, pause.answers, TEXT_OR_DATA)
    return pause.with_answer(resume.text)


async def save_state(ctx: Context, state: Any) -> str:
    """Store state with the task, once, however often a question is asked again. Return the name to load it by."""
    name = f"dragoman/pause/{len(ctx.answers)}"

    async def value() -> Any:
        return state

    await ctx.once(name, value, retry=True)
    return name


async def load_state(ctx: Context, name: str) -> Any:
    """Return the state that `save_state` stored under a name.

    Raises:
        Failed: there is none.
    """

    async def missing() -> Any:
        raise Failed("the agent does not wait for this answer any more")

    return await ctx.once(name, missing, retry=True)


def call_text(tool: str, arguments: str) -> str:
    """Return a tool call as text for a question, with its arguments shortened."""
    return f"{tool}({arguments if len(arguments) <= _MAX_ARGUMENTS else arguments[:_MAX_ARGUMENTS] + '…'})"
