"""The keywords of `Server`, `serve` and `app` are generated from the declarations of the settings.

`DRAGOMAN_UPDATE_GOLDEN=1 python -m pytest tests/unit/server/test_setting_keywords.py` writes them again.
"""

from __future__ import annotations

import ast
import os
from pathlib import Path

from dragoman.server.config import keywords, settings
from dragoman.server.config.settings import SETTINGS

SOURCE, GENERATED = Path(settings.__file__), Path(keywords.__file__)
# Kinds are types of checked values; their names are not those that a caller writes.
WRITTEN = {
    **dict.fromkeys(("Text", "Token", "Url", "GrpcUrl"), "str"),
    **dict.fromkeys(("Port", "Count", "Positive", "Bytes", "Size", "HeadSize"), "int"),
    **dict.fromkeys(("Rate", "Seconds", "Interval"), "float"),
}


def fields(name: str) -> dict[str, str]:
    """The fields of a class of settings, each with the type that a keyword may have."""
    tree = ast.parse(SOURCE.read_text())
    (declaration,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    found: dict[str, str] = {}
    for node in declaration.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = keyword_type(node.target.id, node.annotation, optional=name == "Settings")
    return found


def keyword_type(field: str, annotation: ast.expr, *, optional: bool) -> str:
    if field == "limits":
        return "Limits | LimitKeywords | None"
    assert isinstance(annotation, ast.Subscript) and isinstance(annotation.slice, ast.Tuple), field
    written, unset, _ = ast.unparse(annotation.slice.elts[0]).replace("'", '"').partition(" | None")
    takes = SETTINGS[field if optional else f"limits_{field}"].kind.takes
    return (takes or WRITTEN.get(written, written)) + (" | None" if optional or unset else "")


def test_the_keywords_are_the_declared_settings_with_the_types_that_their_parsers_take() -> None:
    head, heading, _ = GENERATED.read_text().partition("class LimitKeywords")
    classes = {
        "LimitKeywords": ("Limits", "The limits by name: the fields of `Limits`."),
        "SettingKeywords": (
            "Settings",
            "The settings by name: the fields of `Settings`, as a caller may write them. None is as good as not set.",
        ),
    }
    generated = "\n\n\n".join(
        "\n".join(
            [
                f"class {keyword_class}(TypedDict, total=False):",
                f'    """{text}"""',
                "",
                *(f"    {field}: {written}" for field, written in fields(declaration).items()),
            ]
        )
        for keyword_class, (declaration, text) in classes.items()
    )
    if os.environ.get("DRAGOMAN_UPDATE_GOLDEN"):
        GENERATED.write_text(f"{head}{generated}\n")
    assert f"{heading}{GENERATED.read_text().partition(heading)[2]}" == f"{generated}\n"
