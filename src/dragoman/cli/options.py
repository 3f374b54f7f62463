"""Options that several commands share, and commands whose help has groups."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

# Groups may be run without the main group, so they need its help options.
HELP = {"help_option_names": ["-h", "--help"]}


class GroupedOption(click.Option):
    """An option that stands under a heading of its command's help; one that is not `common` only in `--help-all`."""

    def __init__(self, *args: Any, group: str, common: bool = False, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.group = group
        self.common = common


class GroupedCommand(click.Command):
    """A command with many options: `--help` lists the most used ones, `--help-all` all of them, both by group."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return all parameters, with `--help-all` beside `--help`."""
        help_all = click.Option(
            ["--help-all"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_all,
            help="Show all options.",
        )
        return [*super().get_params(ctx), help_all]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under the headings of their groups, in the order of the groups' first options."""
        show_all = _SHOWS_ALL in ctx.meta
        groups: dict[str, list[tuple[str, str]]] = {}
        hidden = 0
        # `--help` and `--help-all`, which are no grouped options, come last.
        for option in sorted(self.get_params(ctx), key=lambda each: not isinstance(each, GroupedOption)):
            record = option.get_help_record(ctx) if isinstance(option, click.Option) else None
            if record is None:
                continue
            if isinstance(option, GroupedOption) and not option.common and not show_all:
                hidden += 1
                continue
            groups.setdefault(option.group if isinstance(option, GroupedOption) else "Help", []).append(record)
        # One column for all groups, so that the texts are below each other.
        width = min(max(len(name) for records in groups.values() for name, _ in records), 28)
        for heading, records in groups.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), text) for name, text in records], col_max=width)
        if hidden:
            formatter.write_paragraph()
            formatter.write_text(f"{hidden} more options: `{ctx.command_path} --help-all`")


_SHOWS_ALL = "dragoman.shows_all_options"


def _show_all(ctx: click.Context, _: click.Parameter, is_set: bool) -> None:
    if is_set and not ctx.resilient_parsing:
        from dragoman.cli.printing import out

        ctx.meta[_SHOWS_ALL] = True
        out(ctx.get_help())
        ctx.exit()


def with_options(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Add options to a command, in this order."""

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


CONFIG: dict[str, Any] = {
    "metavar": "FILE",
    "type": click.Path(path_type=Path),
    "help": "Settings file.  [default: ./dragoman.toml]",
}
config_option = click.option("--config", **CONFIG)
remote_bytes_option = click.option(
    "--limits-remote-bytes",
    metavar="BYTES",
    type=click.IntRange(0),
    help="Maximum bytes to receive for one task; 0 for no limit.  [default: 64 MB]",
)
save_option = click.option(
    "--save",
    metavar="DIR",
    type=click.Path(file_okay=False, writable=True, path_type=Path),
    help="Save the files of the answer to this folder.",
)
raw_option = click.option("--raw", is_flag=True, help="Print text as it is, without rendering Markdown.")
