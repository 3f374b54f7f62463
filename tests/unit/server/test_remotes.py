"""`[remotes.NAME]`: which files count, and what is wrong with a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.model.error import ConfigError
from dragoman.server.config.remotes import Remote, load_remotes, user_config


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_without_files_there_are_none(tmp_path: Path):
    assert load_remotes(environ={}, cwd=tmp_path) == {}
    assert load_remotes(environ={"HOME": str(tmp_path)}, cwd=tmp_path) == {}


def test_the_user_s_remotes_are_added_and_those_of_the_folder_go_before_them(tmp_path: Path):
    home, folder = tmp_path / "home", tmp_path / "work"
    write(
        home / ".config/dragoman/dragoman.toml",
        '[serve]\nport = 1\n[remotes.a]\nurl = "http://a"\n[remotes.b]\nurl = "http://b"\n',
    )
    write(folder / "dragoman.toml", '[remotes.b]\nurl = "https://mine"\ntoken_env = "B"\nprotocol = "0.3"\n')
    assert load_remotes(environ={"HOME": str(home)}, cwd=folder) == {
        "a": Remote(name="a", url="http://a"),
        "b": Remote(name="b", url="https://mine", token_env="B", protocol="0.3"),
    }


def test_the_file_that_the_environment_names_counts(tmp_path: Path):
    write(tmp_path / "other.toml", '[remotes.a]\nurl = "http://a"\n')
    assert list(load_remotes(environ={"DRAGOMAN_CONFIG": "other.toml"}, cwd=tmp_path)) == ["a"]


def test_the_user_s_folder_is_where_the_convention_says(tmp_path: Path):
    assert user_config({"XDG_CONFIG_HOME": str(tmp_path)}) == tmp_path / "dragoman/dragoman.toml"
    home = tmp_path / ".config/dragoman/dragoman.toml"
    assert user_config({"XDG_CONFIG_HOME": "relative", "HOME": str(tmp_path)}) == home
    assert user_config({"USERPROFILE": str(tmp_path)}) == home
    assert user_config({}) is None


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("[remotes.a]", '[remotes.a]: say where it is, as in url = "https://agents.example.com"'),
        ('[remotes.a]\nurl = "a.example.com"', "[remotes.a]: say where it is"),
        ("[remotes.a]\nurl = 1", "[remotes.a] url: must be text, not 1"),
        ('[remotes.a]\ntoken = "x"', "[remotes.a]: there is no setting `token`; did you mean `token_env`?"),
        ("[remotes]\na = 1", "[remotes.a]: must be a table, not 1"),
    ],
)
def test_an_error_in_a_table_names_the_table(tmp_path: Path, table: str, says: str):
    write(tmp_path / "dragoman.toml", table)
    with pytest.raises(ConfigError) as caught:
        load_remotes(environ={}, cwd=tmp_path)
    assert str(caught.value).startswith(f"dragoman.toml {says}")
