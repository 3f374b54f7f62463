"""Which of ADK's sessions a conversation is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from google.adk.sessions.base_session_service import GetSessionConfig

if TYPE_CHECKING:
    from google.adk.runners import Runner
    from google.adk.sessions.session import Session

    from dragoman.engine.context import Context

# Where the name of a session is kept whose service has chosen another than ours.
STATE = "dragoman.adk"
# What every service takes for a name. Callers choose those of their contexts, and some services make paths of them.
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,64}")


async def session_of(runner: Runner, ctx: Context) -> Session:
    """Find the session of a conversation, or create it.

    It has the conversation's id and belongs to the authenticated caller. Where nobody is authenticated, the
    conversation stands for its caller: `A2A_USER_<context>`. Where a context is not named in plain letters, or there
    are tenants that may use the same names, the session's id is a UUID that stands for the context.
    """
    name = ctx.context_id if _PLAIN.fullmatch(ctx.context_id) and not ctx.tenant else ctx.session_id
    user = ctx.user.id if ctx.user is not None else f"A2A_USER_{name}"
    known: str = ctx.state.get(STATE, name)
    service, app = runner.session_service, runner.app_name
    # What was said is read by the runner. Here it is only of interest whether something was asked.
    config = GetSessionConfig(num_recent_events=1) if ctx.resume is None else None
    found = await service.get_session(app_name=app, user_id=user, session_id=known, config=config)
    if found is not None:
        return found
    made = await service.create_session(app_name=app, user_id=user, session_id=name)
    if made.id != name:
        ctx.state[STATE] = made.id
    return made
