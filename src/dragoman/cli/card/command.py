"""`dragoman card`: prints an agent's card, or validates it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from dragoman.cli.completion.candidates import complete_file
from dragoman.cli.remote.address import url_argument
from dragoman.cli.remote.session import CommandSession, Options, call_options, parse_options

if TYPE_CHECKING:
    from dragoman.cli.card.signature import SignatureReport
    from dragoman.dialects.cards.rules.validate import CardProblem
    from dragoman.model.card import AgentCard, AgentInterface


@click.command("card", short_help="Show or validate an agent's card.")
@url_argument
@click.option("--validate", is_flag=True, help="List the problems of the card, with the rules they break.")
@click.option(
    "--jwks",
    metavar="URL|FILE",
    shell_complete=complete_file,
    help="With --validate: require a signature by one of these keys.",
)
@call_options
@click.pass_context
def command(ctx: click.Context, url: str, validate: bool, jwks: str | None, **shared: Any) -> None:
    """Show an agent's card: its name, interfaces and skills, with their arguments if the agent publishes them.

    --validate lists each problem with its field and the rule that is broken, and exits with 1 if there is an error. It
    checks signatures with the keys from the card's own origin, or with those of --jwks.
    """
    from dragoman.cli.printing import out, print_json
    from dragoman.client.card_recorder import CardRecorder
    from dragoman.client.skill_schema import fetch_schemas
    from dragoman.model.error import ConfigError

    if jwks is not None and not validate:
        raise ConfigError("--jwks needs --validate")
    options = parse_options(url, shared)
    recorder = CardRecorder()
    with CommandSession(options, recorder) as session:
        if validate:
            from dragoman.cli.card.signature import check_signature

            place, body = session.run(recorder.card(session.client))
            signed, signature_problems = session.run(check_signature(body, place, options, jwks))
            ctx.exit(_print_problems(place, body, signed, signature_problems, as_json=options.as_json))
        card = session.run(session.client.card())
        schemas = {} if options.as_json else session.run(fetch_schemas(session.client))
    if options.as_json:
        from dragoman.dialects.cards.card import card_json
        from dragoman.dialects.table import V1_0

        print_json(card_json(card, {}, V1_0))
        return
    for pieces in _summary(card, schemas, options):
        out(*pieces)


# -- checking --------------------------------------------------------------------------------------------------------


def _print_problems(
    url: str, body: bytes, signed: SignatureReport | None, signature_problems: list[CardProblem], *, as_json: bool
) -> int:
    from dragoman.cli.printing import colored, out, print_json, say
    from dragoman.dialects.cards.rules.validate import card_problems

    problems = [*card_problems(body, url=url), *signature_problems]
    errors = sum(problem.level == "error" for problem in problems)
    if as_json:
        listed = [problem._asdict() for problem in problems]
        print_json({"url": url, "signed": signed and signed._asdict(), "problems": listed})
    else:
        for problem in problems:
            level = colored(f"{problem.level:<7}", "red" if problem.level == "error" else "yellow")
            out(level, f"  {problem.field}: {problem.found}. {problem.rule}")
        if body.lstrip()[:1] == b"{" and not signature_problems:
            out(f"signed   {signed}" if signed else "not signed")
        say(f"{url}: {_count(errors, 'error')}, {_count(len(problems) - errors, 'warning')}")
    return 1 if errors else 0


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"


# -- showing ---------------------------------------------------------------------------------------------------------


def _summary(card: AgentCard, schemas: dict[str, Any], options: Options) -> Iterator[tuple[str, ...]]:
    """Yield the lines of the summary, each as the pieces that `out` takes."""
    from dragoman.cli.printing import colored, field

    yield colored(card.name, bold=True), f" {card.version}"
    yield (card.description,)
    if card.provider is not None:
        yield (f"by {card.provider.organization}, {card.provider.url}",)
    if card.documentation_url:
        yield (card.documentation_url,)
    for title, lines in (
        ("interfaces", _interfaces(card, options)),
        ("capabilities", _capabilities(card)),
        ("security", _security(card)),
        ("skills", _skills(card, schemas)),
    ):
        yield ()
        yield (colored(title, bold=True),)
        yield from ((f"  {field(line)}",) if line.strip() else () for line in lines)


def _interfaces(card: AgentCard, options: Options) -> Iterator[str]:
    preferred = _preferred_interface(card, options)
    for each in card.supported_interfaces:
        tenant = f", tenant {each.tenant}" if each.tenant else ""
        marker = "*" if each is preferred else " "
        yield f"{marker} {each.protocol_binding} {each.protocol_version}  {each.url}{tenant}"
    if preferred is not None:
        yield "* is the one that would be used"


def _preferred_interface(card: AgentCard, options: Options) -> AgentInterface | None:
    """Return the interface that the client would try first; None when none fits."""
    from dragoman.client.interface import interfaces_of
    from dragoman.model.error import DragomanError

    try:
        first = interfaces_of(card, options.protocol, options.transport)[0].binding
    except DragomanError:
        return None
    same = [
        each
        for each in card.supported_interfaces
        if each.protocol_binding.upper() == first.name
        and first.url.rstrip("/").endswith(each.url.rstrip("/"))  # cards write host:port for gRPC
    ]
    same_version = (each for each in same if each.protocol_version.startswith(first.dialect.version))
    return next(same_version, same[0] if same else None)


def _capabilities(card: AgentCard) -> Iterator[str]:
    capabilities = card.capabilities
    for name, has in (
        ("streaming", capabilities.streaming),
        ("push notifications", capabilities.push_notifications),
        ("extended card", capabilities.extended_agent_card),
    ):
        yield f"{name}: {'not said' if has is None else 'yes' if has else 'no'}"
    for each in capabilities.extensions:
        yield f"extension {each.uri}{' (required)' if each.required else ''}"
    yield f"takes {', '.join(card.default_input_modes)}; gives {', '.join(card.default_output_modes)}"


def _security(card: AgentCard) -> Iterator[str]:
    from dragoman.auth.outbound.requirement import alternatives, declared_schemes

    requirements = alternatives(card)
    for number, schemes in enumerate(requirements):
        yield f"{'or ' if number else ''}{' and '.join(map(str, schemes))}"
    if not requirements:
        schemes = declared_schemes(card)
        yield f"nothing is demanded; known are {', '.join(map(str, schemes))}" if schemes else "none"


def _skills(card: AgentCard, schemas: dict[str, Any]) -> Iterator[str]:
    from dragoman.client.skill_schema import skill_schema
    from dragoman.schema.budget import step_budget
    from dragoman.schema.outline import Outline

    if not card.skills:
        yield "none"
    for skill in card.skills:
        title = skill.id if skill.name in ("", skill.id) else f"{skill.id} ({skill.name})"
        yield f"{title}: {' '.join(skill.description.split())}"
        with step_budget():
            arguments = Outline(skill_schema(schemas, skill.id)).fields(quote="")
        yield from (f"    {line}" for line in arguments)
        yield from (f"    e.g. {' '.join(example.split())}" for example in skill.examples)
