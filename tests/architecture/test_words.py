"""The words of source and tests: nobody's own, one for one thing, and every word of ours in docs/glossary.md."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import cast

from architecture.sources import parsed

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "dragoman"
TESTS = ROOT / "tests"
GLOSSARY = ROOT / "docs" / "glossary.md"
# Words of the protocol, of Python and of the trade, which need no entry in the glossary.
PLAIN_WORDS = frozenset(Path(__file__).with_name("plain_words.txt").read_text(encoding="utf-8").split())

# A name says what a thing holds, not what happened to it; and it is the word that people search for.
UNWANTED = {
    "said": "message, text, output",
    "told": "response, report, reason",
    "heard": "event, received",
    "shown": "redacted, displayed, visible",
    "known": "existing, stored, cached",
    "letter": "request",
    "errand": "follower",
    "desk": "registry",
    "sieve": "filter",
    "latecomers": "late_requests",
    "patience": "timeout",
}
# The words that tests must not use either: most of these names hold a message, a response or an event.
UNWANTED_IN_TESTS = {
    **{word: UNWANTED[word] for word in ("said", "told", "heard")},
    "came": "received, arrived, message, event",
    "courier": "sender, client, request",
    "couriers": "senders, clients, requests",
}
# A name stands twice only where it is a face of the same thing: blocking or async, or in another API.
FACES = ("client/sync.py", "agents/functions/sync_context.py")


# The nodes that name something, and where.
NAMED: dict[type[ast.AST], str] = {
    **{ast.Name: "id", ast.Attribute: "attr", ast.arg: "arg", ast.keyword: "arg"},
    **dict.fromkeys((ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler, ast.MatchAs), "name"),
}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE).as_posix(), parsed(path)


def modules_of_tests() -> Iterator[tuple[str, ast.Module]]:
    """The tests that may have an unwanted word: a file without it anywhere in its text is not parsed."""
    anywhere = re.compile("|".join(UNWANTED_IN_TESTS), re.IGNORECASE)
    for path in sorted(TESTS.rglob("*.py")):
        module = path.relative_to(TESTS)
        if anywhere.search(path.read_text(encoding="utf-8")):
            yield module.as_posix(), parsed(path)


def identifiers(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every name that is bound or used in a module, with its line."""
    for node in ast.walk(tree):
        if (field := NAMED.get(type(node))) and isinstance(name := getattr(node, field), str):
            yield name, cast("ast.expr", node).lineno


@cache
def words(name: str) -> list[str]:
    """The words of an identifier, in lower case: `DedupeKey`, `dedupe_key` and `_DEDUPE_KEY` have the same."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def is_wire_type(module: str) -> bool:
    return re.match(r"dialects/v\w+/", module) is not None


def public_classes() -> dict[str, list[str]]:
    """The modules of each public class, other than wire types and the APIs of older documents."""
    classes: dict[str, list[str]] = defaultdict(list)
    for module, tree in modules():
        if not module.startswith("compat/") and module not in FACES and not is_wire_type(module):
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    classes[node.name].append(module)
    return classes


def glossary() -> list[str]:
    return re.findall(r"^\| \*\*(.+?)\*\* \|", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)


def unwanted_names(modules: Iterable[tuple[str, ast.Module]], unwanted: Mapping[str, str]) -> list[str]:
    """The identifiers with one of these words, each with its place and what to use instead."""
    return [
        f"{module}:{line}: {name}; better: {unwanted[word]}"
        for module, tree in modules
        for name, line in identifiers(tree)
        for word in words(name)
        if word in unwanted and "well_known" not in name.lower()
    ]


def test_no_identifier_is_a_word_of_the_house() -> None:
    found = unwanted_names(modules(), UNWANTED)
    assert not found, "\n".join(found)


def test_no_identifier_in_tests_is_a_word_of_the_house() -> None:
    found = unwanted_names(modules_of_tests(), UNWANTED_IN_TESTS)
    assert not found, "\n".join(found)


def test_no_public_class_name_stands_twice() -> None:
    assert {name: modules for name, modules in public_classes().items() if len(modules) > 1} == {}


def test_every_module_and_public_class_has_a_docstring_that_says_something() -> None:
    silent: list[str] = []
    for module, tree in modules():
        public = [node for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
        for node in (tree, *public):
            text = ast.get_docstring(node)
            name = f"{module} {getattr(node, 'name', '')}"
            if text is None and not (isinstance(node, ast.ClassDef) and _is_documented_elsewhere(module)):
                silent.append(f"{name} has no docstring")
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                text = ast.get_docstring(node)
                if text is not None and re.fullmatch(r"See \S+", text.strip()):
                    silent.append(f"{module}:{node.lineno} {node.name} says only {text!r}")
    assert not silent, "\n".join(silent)


def _is_documented_elsewhere(module: str) -> bool:
    """The specification and the older documents say what their types are."""
    return is_wire_type(module) or module.startswith(("model/", "compat/"))


def test_every_word_of_ours_is_in_the_glossary() -> None:
    explained = {word for entry in glossary() for word in _forms(entry)}
    names = {name: f"class in {', '.join(found)}" for name, found in public_classes().items()}
    names |= {
        part: module
        for module, _ in modules()
        if not module.startswith("compat/")
        for part in Path(module).with_suffix("").parts
    }
    protocol = {word for module, tree in modules() if module.startswith("model/") for word in _class_words(tree)}
    unknown = {
        word: f"{name}, {where}"
        for name, where in names.items()
        for word in words(name)
        if word not in explained and word not in protocol and word not in PLAIN_WORDS
    }
    assert not unknown, f"explain these in docs/glossary.md, or use a word that people of this field use: {unknown}"


def _class_words(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from words(node.name)


def _forms(entry: str) -> Iterator[str]:
    """A word of the glossary as it may stand in a name: in the plural, as a verb, as the one who does it."""
    for word in words(entry):
        stem = word.removesuffix("e")
        yield from (word, f"{word}s", f"{stem}er", f"{stem}ers", f"{stem}ing", f"{stem}ed", f"{word}ed", f"{word}ing")


def test_every_word_of_the_glossary_is_used() -> None:
    used = {word for module, tree in modules() for name, _ in identifiers(tree) for word in words(name)}
    used |= {word for module, _ in modules() for word in words(module)}
    unused = [
        each for each in glossary() if not all(any(form in used for form in _forms(word)) for word in words(each))
    ]
    assert unused == []


def test_the_glossary_lists_a_word_once() -> None:
    assert len(glossary()) == len(set(glossary()))


def test_no_plain_word_is_kept_that_nothing_uses() -> None:
    used = {word for name in public_classes() for word in words(name)}
    used |= {word for module, _ in modules() for word in words(module)}
    assert sorted(PLAIN_WORDS - used) == []
