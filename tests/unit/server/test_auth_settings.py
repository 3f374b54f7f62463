"""`auth`: the forms in which schemes are named, and what is wrong with others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from dragoman import User
from dragoman.model.error import ConfigError
from dragoman.server.config.loader import load_settings
from dragoman.server.config.settings import Settings
from dragoman.server.http.authentication import AuthSettings


def load(folder: Path, environ: dict[str, str] | None = None, flags: Any = None, **keywords: Any) -> Settings:
    return load_settings(keywords, environ=environ or {}, config=None, cwd=folder, flags=flags)


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("cookie", ("cookie",)),
        ("cookie, bearer", ("cookie", "bearer")),
        (["cookie", "bearer"], ("cookie", "bearer")),
        (("cookie",), ("cookie",)),
        ({"apikey": {"name": "X-Key"}, "cookie": {}}, ("apikey", "cookie")),
    ],
)
def test_schemes_are_named_in_any_form_that_is_at_hand(tmp_path: Path, value: Any, names: tuple[str, ...]) -> None:
    auth = load(tmp_path, auth=value).auth
    assert (auth.names, dict(auth.tables)) == (names, value if isinstance(value, dict) else {})


def test_the_environment_and_the_flag_name_schemes_too(tmp_path: Path) -> None:
    assert load(tmp_path, {"DRAGOMAN_AUTH": "cookie,bearer"}).auth.names == ("cookie", "bearer")
    assert load(tmp_path, flags={"auth": ("mtls", "cookie")}).auth.names == ("mtls", "cookie")


def test_a_function_stays_what_it_is(tmp_path: Path) -> None:
    async def function(request: Any) -> User | None:
        return None

    (tmp_path / "dragoman.toml").write_text("[auth.cookie]\n")
    assert load(tmp_path, auth=function).auth is function


def test_the_tables_of_the_file_turn_schemes_on_and_set_them(tmp_path: Path) -> None:
    (tmp_path / "dragoman.toml").write_text('[auth.cookie]\n[auth.bearer]\naudience = "me"\njwks_file = "keys.json"\n')
    settings = load(tmp_path)
    assert settings.auth == AuthSettings(
        ("cookie", "bearer"), {"cookie": {}, "bearer": {"audience": "me", "jwks_file": "keys.json"}}, tmp_path
    )
    narrowed = load(tmp_path, flags={"auth": ("bearer",)})
    assert (narrowed.auth.names, list(narrowed.auth.tables)) == (("bearer",), ["bearer"])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (5, "keyword auth: must be names of schemes or a function, not 5"),
        (True, "keyword auth: must be names of schemes or a function, not true"),
        ("", "keyword auth: names no scheme"),
        ([], "keyword auth: names no scheme"),
        ({}, "keyword auth: names no scheme"),
        ({"cookie": 5}, "keyword auth: cookie: must be a table of what is set for it, as in {}, not 5"),
        ({"cookie": None}, "keyword auth: cookie: must be a table of what is set for it, as in {}, not null"),
    ],
)
def test_an_invalid_list_of_schemes_is_refused_with_the_reason(tmp_path: Path, value: Any, expected: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(expected)}$"):
        load(tmp_path, auth=value)
