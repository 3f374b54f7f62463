"""What a paused run waits for, and what has been answered so far."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import Struct

from dragoman.engine.execute.outputs import AnsweredQuestion, Ask
from dragoman.model.error import Failed

if TYPE_CHECKING:
    from dragoman.engine.execute.context import Context

_YES = frozenset({"yes", "y", "ok", "okay", "sure", "true", "approve", "approved", "confirm", "confirmed", "go ahead"})
_NO = frozenset({"no", "n", "nope", "false", "reject", "rejected", "deny", "denied", "decline", "declined", "don't"})
_KEYS = frozenset({"approved", "confirmed", "message"})


class Approval(Struct, frozen=True):
    """Yes or no, and with a no the caller's reason, where one was given."""

    approved: bool
    message: str | None = None


def approval_of(answer: Any) -> Approval | None:
    """Read a yes or a no; None when it is neither.

    Takes a truth value, `{"approved": false, "message": "too much"}`, or a text. A yes must say nothing else: "yes,
    but only half of it" does not approve what was shown. A no may go on, and the text is its reason.
    """
    if isinstance(answer, bool):
        return Approval(answer)
    if isinstance(answer, dict):
        return _of_data(cast("dict[str, Any]", answer))
    if not isinstance(answer, str):
        return None
    words = " ".join(answer.casefold().replace("\u2019", "'").split()).strip(" .!")
    if words in _YES:
        return Approval(True)
    if words in _NO:
        return Approval(False)
    return Approval(False, answer.strip()) if re.split(r"[^\w']", words, maxsplit=1)[0] in _NO else None


def _of_data(answer: dict[str, Any]) -> Approval | None:
    verdict = answer.get("approved", answer.get("confirmed"))
    message = answer.get("message")
    # What else it may want, such as other arguments, would not be done: so it is no answer.
    if not isinstance(verdict, bool) or not answer.keys() <= _KEYS or not isinstance(message, str | None):
        return None
    return Approval(verdict, None if verdict else message)


YES_OR_NO = "Please answer yes or no."
SOMETHING = "Please answer with a text or with data."
# More of a call's arguments is not put into a question; all of them are shown beside it.
_LONGEST = 200


class Pending(Struct, frozen=True, omit_defaults=True):
    """One thing that a run waits for: an approval, or a value.

    `shown` is what programs may read beside the question. With `reason`, a value may be a no that has one, too.
    """

    id: str
    question: str
    details: Any = msgspec.field(default=None, name="shown")
    approval: bool = False
    reason: bool = False


class Pause(Struct, frozen=True, omit_defaults=True):
    """All that a run waits for. It is JSON, and is kept with the question.

    The questions are asked one after the other, so that a plain "yes" is about one thing. A data part may answer
    several at once, by their ids. `held` is what the framework needs to go on. It is written with every question:
    what may be large is kept with `keep`, and its name is held.
    """

    pending: tuple[Pending, ...]
    state: Any = msgspec.field(default=None, name="held")
    answers: dict[str, Any] = {}
    remark: str = ""

    @property
    def open(self) -> tuple[Pending, ...]:
        """What has not been answered."""
        return tuple(one for one in self.pending if one.id not in self.answers)

    def ask(self) -> Ask:
        """The next question, with everything that is open shown beside it."""
        first = self.open[0]
        question = f"{first.question} {self.remark}".strip()
        return Ask(
            question, ref=msgspec.to_builtins(self), details=tuple(one.details for one in self.open if one.details)
        )

    def with_answer(self, answer: Any, comment: str = "") -> Pause:
        """The pause after an answer. What cannot be read is asked for again.

        `beside` is a text that came with data: it is the reason of every no that has none.
        """
        waiting = self.open
        by_id = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
        # Programs may send all answers again and again: what has been answered stays as it was.
        if not by_id or not by_id.keys() <= {one.id for one in self.pending}:
            by_id = {waiting[0].id: cast("Any", answer)}
        named = [one for one in waiting if one.id in by_id]
        unread = {one.id for one in named if one.approval and approval_of(by_id[one.id]) is None}
        read = {one.id: _with_reason(one, by_id[one.id], comment) for one in named if one.id not in unread}
        return Pause(self.pending, self.state, {**self.answers, **read}, YES_OR_NO if unread else "")

    def without_answer(self, id: str, remark: str) -> Pause:
        """The pause without that answer, which does not fit."""
        answers = {other: value for other, value in self.answers.items() if other != id}
        return Pause(self.pending, self.state, answers, remark)


def _with_reason(one: Pending, answer: Any, comment: str) -> Any:
    approval = approval_of(answer) if comment.strip() and (one.approval or one.reason) else None
    if approval is None or approval.approved or approval.message:
        return answer
    return {"approved": False, "message": comment.strip()}


def pause_of(resume: AnsweredQuestion | None) -> Pause | None:
    """The pause that this run goes on from, with the answer that has just come; None in a first run."""
    if resume is None:
        return None
    pause = msgspec.convert(resume.ref, Pause)
    if resume.data is not None:
        return pause.with_answer(resume.data, resume.text)
    if not resume.text.strip():
        # A file alone, for one.
        return Pause(pause.pending, pause.state, pause.answers, SOMETHING)
    return pause.with_answer(resume.text)


async def save_state(ctx: Context, state: Any) -> str:
    """Keep something with the task, once, however often a question is asked again. Gives its name."""
    name = f"dragoman/pause/{len(ctx.answers)}"

    async def value() -> Any:
        return state

    await ctx.once(name, value, retry=True)
    return name


async def load_state(ctx: Context, name: str) -> Any:
    """What was kept under that name.

    Raises:
        Failed: nothing was.
    """

    async def missing() -> Any:
        raise Failed("the agent does not wait for this answer any more")

    return await ctx.once(name, missing, retry=True)


def call_text(tool: str, arguments: str) -> str:
    """A call as a person may read it in a question."""
    return f"{tool}({arguments if len(arguments) <= _LONGEST else arguments[:_LONGEST] + '…'})"
