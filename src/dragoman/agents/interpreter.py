"""Programs that run code: which words of a command are code, and which is the script."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import NamedTuple


class Interpreter(NamedTuple):
    """How one kind of them is called.

    `code` are the options whose value is code; the group is what stands in the same word. `valued` are the options
    with a value of another kind, `elsewhere` those after which no word is a script. The code comes `late`, after all
    options, or with the option, and there may be more of it `again`. Where it is not `sure`, the first word may also be
    a command of the interpreter's.
    """

    name: re.Pattern[str]
    code: re.Pattern[str]
    valued: re.Pattern[str]
    elsewhere: re.Pattern[str]
    late: bool = False
    again: bool = True
    sure: bool = True


class Run(NamedTuple):
    """A word that an interpreter runs: code, or the path of a script."""

    at: int
    kind: Interpreter
    is_code: bool


def _kind(name: str, code: str, valued: str, elsewhere: str, **about: bool) -> Interpreter:
    name, code, valued, elsewhere = (f"(?s:{each})" for each in (name, code, valued, elsewhere))
    return Interpreter(re.compile(name), re.compile(code), re.compile(valued), re.compile(elsewhere), **about)


SHELL = _kind(
    "sh|ash|bash|dash|zsh|ksh|mksh",
    "-[A-Za-z]*c[A-Za-z]*()",
    "[-+][A-Za-z]*[oO]|--(?:rcfile|init-file)",
    "-[A-Za-z]*s[A-Za-z]*",
    late=True,
)
NODE = _kind(
    "node|nodejs",
    "(?:-e|-p|-pe|--eval=?|--print=?)(.*)",
    "-[rC]|--(?:require|import|loader|experimental-loader|conditions)",
    "-|-i|--interactive|--test|--run.*|inspect",
)
_KINDS = (
    SHELL,
    NODE,
    _kind("fish", "(?:-c|--command=?|-C|--init-command=?)(.*)", "-[dDfop]", "-"),
    _kind(
        "(?:python|pypy)[0-9.]*",
        "-[bBdEiIOPqsSuvx]*c(.*)",
        "-[WX]|--check-hash-based-pycs",
        "-|-[bBdEiIOPqsSuvx]*m.*",
        again=False,
    ),
    _kind(
        "bun|deno",
        "(?:-e|-p|--eval=?|--print=?|eval$)(.*)",
        "-[cr]|--(?:preload|require|config|cwd|env-file)",
        "-",
        sure=False,
    ),
    _kind("perl[0-9.]*", "-[acfilnpstTuUvwWX0-9]*[eE](.*)", "-I", "-|-[A-Za-z]*S"),
    _kind("ruby[0-9.]*", "-[acdilnpsvwW0-9]*e(.*)", "-[IrCEx]|--encoding", "-|-[A-Za-z]*S"),
    _kind("php[0-9.]*", "(?:-[rRBE]|--(?:run|process-code|process-begin|process-end)=?)(.*)", "-[cdzt]", "-|-[fFSa].*"),
    _kind("lua[0-9.]*|luajit", "-e(.*)", "-l", "-"),
)
_SSH = re.compile("ssh|slogin|autossh")
_SSH_VALUED = re.compile("-[BbcDEeFIiJLlmOopQRSWw]")


def interpreter_of(word: str) -> Interpreter | None:
    """The interpreter that a word names, if it names one."""
    return next((kind for kind in _KINDS if kind.name.fullmatch(PurePath(word).name)), None)


def runs_of(words: Sequence[str]) -> Iterator[Run]:
    """What a command that begins with an interpreter runs, in its order; nothing for others."""
    kind = interpreter_of(words[0]) if words else None
    if kind is None:
        return
    has_code = False
    numbers = iter(range(1, len(words)))
    for number in numbers:
        word = words[number]
        code = kind.code.fullmatch(word)
        if code is not None:
            has_code = True
            if not kind.late:
                at = number if code[1] else next(numbers, None)
                if at is not None:
                    yield Run(at, kind, is_code=True)
                if not kind.again:
                    return
        elif kind.elsewhere.fullmatch(word):
            if not (kind.late and has_code):
                return
        elif kind.valued.fullmatch(word):
            next(numbers, None)
        elif word == "--" or not word.startswith(("-", "+")):
            at = next(numbers, None) if word == "--" else number
            if at is not None and (kind.late or not has_code):
                yield Run(at, kind, is_code=has_code)
            return


def code_words(words: Sequence[str]) -> Iterator[int]:
    """Which words of a command are code, wherever they stand: `env` and others start interpreters, too.

    What ssh sends to its host is code, whatever it is: a shell reads it there.
    """
    at = 0
    while at < len(words):
        runs = list(runs_of(words[at:]))
        code = [run for run in runs if run.is_code]
        yield from (at + run.at for run in code)
        if code:
            # After the code of a shell comes what it is to call itself.
            at += code[-1].at + (2 if code[-1].kind.late else 1)
        elif runs and not at:
            return  # all others are the script's
        elif _SSH.fullmatch(PurePath(words[at]).name):
            yield from _sent(words, at + 1)
            return
        else:
            at += 1


def _sent(words: Sequence[str], at: int) -> Iterable[int]:
    """The words that ssh sends to the shell of its host, which splits them again."""
    while at < len(words) and words[at].startswith("-"):
        at += 2 if _SSH_VALUED.fullmatch(words[at]) else 1
    return range(at + 1, len(words))
