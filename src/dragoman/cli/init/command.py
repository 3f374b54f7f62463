"""`dragoman init`: makes a folder with a new agent."""

from __future__ import annotations

import re
import shlex
import unicodedata
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dragoman.cli.init.template import TEMPLATES, Template
from dragoman.cli.printing import out
from dragoman.installation import activate_line
from dragoman.model.error import ConfigError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_LONGEST = 64
_EPILOG = "\b\nTemplates:\n" + "\n".join(f"  {each.name:<12} {each.help}" for each in TEMPLATES.values())


def _find_template(ctx: click.Context, parameter: click.Parameter, value: str) -> Template:
    """Find a template by name. Raises BadParameter with the nearest match."""
    if value in TEMPLATES:
        return TEMPLATES[value]
    near = get_close_matches(value.lower(), TEMPLATES, n=1)
    hint = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(TEMPLATES)}."
    raise click.BadParameter(f"there is no template `{value}`; {hint}", ctx, parameter)


def _complete_template(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [
        CompletionItem(each.name, help=each.help) for each in TEMPLATES.values() if each.name.startswith(incomplete)
    ]


@click.command("init", short_help="Create a folder with a new agent.", epilog=_EPILOG)
@click.argument("name", required=False, metavar="[NAME]")
@click.option(
    "--template",
    metavar="TEMPLATE",
    default="tools",
    show_default=True,
    callback=_find_template,
    shell_complete=_complete_template,
    help="Kind of agent; see below.",
)
def command(name: str | None, template: Template) -> None:
    """Create a folder with a new agent: code, a test, settings and a README.

    The agent runs and its test passes right away, without an API key. Without NAME, the files go into the current
    folder, which must be empty. Existing files are never overwritten.
    """
    folder = Path(name) if name is not None and name != "." else Path()
    agent_name = _suggestion(Path.cwd().name) if folder == Path() else _check_name(folder)
    texts = template.write(agent_name)
    try:
        _check_folder(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in texts.items():
            with (folder / file).open("x", encoding="utf-8") as opened:  # never overwrites
                opened.write(text)
    except OSError as error:
        raise ConfigError(f"cannot write {error.filename or folder}: {error.strerror or error}") from None
    _print_next_steps(folder, template)


def _check_name(folder: Path) -> str:
    """Return the name of an agent from that of its folder. Raises ConfigError with a better one."""
    name = folder.name
    if _NAME.fullmatch(name) and len(name) <= _LONGEST:
        return name
    better = str(folder.with_name(_suggestion(name)) if name not in ("", "..") else "my-agent")
    raise ConfigError(
        f"`{name or folder}` cannot be the name of an agent: use letters, digits, - and _, as in "
        f"`dragoman init {shlex.quote(better)}`"
    )


def _suggestion(name: str) -> str:
    """Return a name that is like another, and allowed."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9_]+", "-", plain)[:_LONGEST].strip("-_").lower() or "my-agent"


def _check_folder(folder: Path) -> None:
    """Raise ConfigError unless a folder is new or empty. Hidden files and virtual environments do not count."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ConfigError(f"`{folder}` is a file: choose another name")
    entries = sorted(folder.iterdir(), key=lambda each: (each.name.startswith("."), each.name))
    found = next((each.name for each in entries if _counts(each)), None)
    if found is None:
        return
    if folder == Path():
        raise ConfigError(
            f"this folder is not empty (it contains {found}): create a new one, as in `dragoman init my-agent`"
        )
    raise ConfigError(
        f"the folder {folder} is not empty (it contains {found}): choose another name, as in "
        f"`dragoman init {shlex.quote(f'{folder}-2')}`"
    )


def _counts(entry: Path) -> bool:
    """True for what a folder must not have: all but hidden files that are not ours, and virtual environments."""
    if entry.name.startswith("."):
        return entry.name == ".gitignore"
    return not (entry / "pyvenv.cfg").is_file()


def _print_next_steps(folder: Path, template: Template) -> None:
    here = folder == Path()
    steps = [
        activate_line(),
        None if here else f"cd {shlex.quote(str(folder))}",
        template.missing_line(),
        "dragoman serve",
        f"{template.send_line}    # in a second terminal",
        "pytest",
    ]
    out(f"created {'an agent here' if here else folder} from the template {template.name}. Next steps:\n")
    for step in filter(None, steps):
        out(f"  {step}")
