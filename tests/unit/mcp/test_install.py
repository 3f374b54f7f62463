"""Telling MCP hosts about this server: what is written, where, and what is left as it was."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dragoman.cli.main import group
from dragoman.errors import ConfigError
from dragoman.installation import requirement
from dragoman.mcp.hosts.install import config_path, is_unset, launch_command, placeholder, write_entry

URL = "http://127.0.0.1:9999"
PLACES = {
    "claude-desktop": ("home/.config/Claude/claude_desktop_config.json", "mcpServers"),
    "claude-code": ("folder/.mcp.json", "mcpServers"),
    "cursor": ("home/.cursor/mcp.json", "mcpServers"),
    "vscode": ("folder/.vscode/mcp.json", "servers"),
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and a folder to be in, both empty."""
    for name in ("home", "folder"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_CONFIG_HOME", "DRAGOMAN_CONFIG", "UV_CACHE_DIR", "APPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path / "folder")
    return tmp_path


def install(host: str, *args: str) -> Result:
    done = CliRunner().invoke(group, ["mcp", "install", "--host", host, *args])
    if isinstance(done.exception, ConfigError):
        raise done.exception
    return done


def entry_in(path: Path, key: str = "mcpServers") -> dict[str, Any]:
    return json.loads(path.read_text("utf-8"))[key]["dragoman"]


@pytest.mark.parametrize("host", PLACES)
def test_each_host_is_configured_in_its_own_file_with_absolute_paths(place: Path, host: str) -> None:
    where, key = PLACES[host]
    done = install(host, URL, "--allow", "a.example", "--store", "sqlite:///kept.db", "--wait-seconds", "20")
    assert done.exit_code == 0
    assert re.search(rf"updated \S+{re.escape(where)}; restart ", done.stderr)
    entry = entry_in(place / where, key)
    assert Path(entry["command"]).is_absolute()
    assert entry["args"][entry["args"].index("mcp") + 1 :] == [
        URL,
        "--config",
        os.devnull,
        "--allow",
        "a.example",
        "--store",
        f"sqlite:///{place / 'folder' / 'kept.db'}",
        "--wait-seconds",
        "20",
    ]
    assert entry.get("type") == ("stdio" if host == "vscode" else None)
    assert "env" not in entry


@pytest.mark.parametrize("host", PLACES)
def test_what_is_printed_is_what_would_be_written_and_nothing_is(place: Path, host: str) -> None:
    where, key = PLACES[host]
    printed = install(host, URL, "--simple-tools", "--print")
    assert not (place / where).exists()
    install(host, URL, "--simple-tools")
    assert json.loads(printed.stdout) == {key: {"dragoman": entry_in(place / where, key)}}
    assert ("claude mcp add dragoman -- /" in printed.stderr) == (host == "claude-code")


def test_hosts_have_their_files_where_the_system_has_them(tmp_path: Path) -> None:
    def found(platform: str, **environ: str) -> str:
        return str(config_path("claude-desktop", environ={"HOME": "/h", **environ}, cwd=tmp_path, platform=platform))

    name = "Claude/claude_desktop_config.json"
    assert found("darwin") == f"/h/Library/Application Support/{name}"
    assert found("linux") == f"/h/.config/{name}"
    assert found("linux", XDG_CONFIG_HOME="/x") == f"/x/{name}"
    assert found("win32", APPDATA="/roaming") == f"/roaming/{name}"
    assert found("win32") == f"/h/AppData/Roaming/{name}"


# -- what is there already ---------------------------------------------------------------------------------------------


def test_everything_else_in_the_file_stays_and_a_copy_of_it_is_beside_it(place: Path) -> None:
    path = place / "home" / ".cursor" / "mcp.json"
    path.parent.mkdir()
    before = '{\n\t"größe": 1.50,\n\t"mcpServers": {"other": {"command": "x", "env": {"K": ""}}},\n\t"last": [null]\n}'
    path.write_text(before, "utf-8")
    path.chmod(0o600)
    install("cursor", URL)
    now = json.loads(path.read_text("utf-8"))
    assert list(now) == ["größe", "mcpServers", "last"]
    assert now["mcpServers"].pop("dragoman")["args"]
    assert now == json.loads(before)
    assert '\n\t"größe": 1.5' in path.read_text("utf-8")
    assert (path.parent / "mcp.json.bak").read_text("utf-8") == before
    assert {each.name: each.stat().st_mode & 0o777 for each in path.parent.iterdir()} == {
        "mcp.json": 0o600,
        "mcp.json.bak": 0o600,
    }


def test_the_same_again_changes_nothing_and_other_options_change_the_entry(place: Path) -> None:
    install("claude-code", URL)
    path = place / "folder" / ".mcp.json"
    first = path.stat().st_mtime_ns
    assert "is already up to date" in install("claude-code", URL).stderr
    assert path.stat().st_mtime_ns == first
    assert not path.with_name(".mcp.json.bak").exists()
    install("claude-code", "http://127.0.0.1:1")
    assert "http://127.0.0.1:1" in entry_in(path)["args"]
    assert URL not in entry_in(path)["args"]


def test_the_copy_is_how_the_file_was_before_the_first_time(place: Path) -> None:
    path = place / "folder" / ".mcp.json"
    path.write_text('{"mine": 1}')
    install("claude-code", URL)
    install("claude-code", "http://127.0.0.1:1")
    assert path.with_name(".mcp.json.bak").read_text() == '{"mine": 1}'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"label": "\\ud83d half an emoji"}', "has half a character in it"),
        ('{"mcpServers": {} // mine\n}', "is not JSON"),
        ("[]", "is not a JSON object"),
        ('{"mcpServers": []}', 'has something else than a table under "mcpServers"'),
        ('{"a": 1, "a": 2}', "a key stands in it twice"),
        (b"\xff\xfe{", "is not UTF-8 text"),
    ],
)
def test_a_file_that_cannot_be_added_to_is_left_as_it_is(place: Path, text: str | bytes, says: str) -> None:
    path = place / "folder" / ".mcp.json"
    before = text.encode() if isinstance(text, str) else text
    path.write_bytes(before)
    with pytest.raises(ConfigError) as caught:
        install("claude-code", URL)
    assert says in str(caught.value)
    assert str(caught.value).endswith("and is left as it is: mend it, or add by hand what --print shows")
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == [".mcp.json"]


@pytest.mark.parametrize("before", ["", "\n", "\ufeff{}"])
def test_a_file_with_nothing_in_it_is_filled(place: Path, before: str) -> None:
    path = place / "folder" / ".mcp.json"
    path.write_text(before, "utf-8")
    install("claude-code", URL)
    assert URL in entry_in(path)["args"]


@pytest.mark.skipif(os.name != "posix", reason="links need rights elsewhere")
def test_a_link_stays_a_link(place: Path) -> None:
    real = place / "dotfiles.json"
    real.write_text("{}")
    link = place / "folder" / ".mcp.json"
    link.symlink_to(real)
    install("claude-code", URL)
    assert link.is_symlink()
    assert URL in entry_in(real)["args"]


def test_a_file_that_cannot_be_written_is_a_clear_error(place: Path) -> None:
    (place / "home" / ".cursor").write_text("no folder")
    with pytest.raises(ConfigError, match=r"cannot be written: .*: --print shows what to put there"):
        install("cursor", URL)


# -- secrets -----------------------------------------------------------------------------------------------------------


def configured(place: Path) -> Path:
    file = place / "folder" / "dragoman.toml"
    file.write_text('[remotes.weather]\nurl = "https://weather.example"\ntoken_env = "WEATHER_TOKEN"\n')
    return file


@pytest.mark.parametrize(
    ("host", "value"),
    [
        ("claude-desktop", "<put the value of WEATHER_TOKEN here>"),
        ("claude-code", "${WEATHER_TOKEN:-}"),
        ("cursor", "${env:WEATHER_TOKEN}"),
        ("vscode", "${env:WEATHER_TOKEN}"),
    ],
)
def test_tokens_are_named_and_never_written(
    place: Path, monkeypatch: pytest.MonkeyPatch, host: str, value: str
) -> None:
    file = configured(place)
    monkeypatch.setenv("WEATHER_TOKEN", "very-secret")
    printed = install(host, "--print")
    done = install(host)
    where, key = PLACES[host]
    entry = entry_in(place / where, key)
    assert entry["env"] == {"WEATHER_TOKEN": value}
    assert entry["args"][-2:] == ["--config", str(file)]
    assert "very-secret" not in (place / where).read_text() + done.output + printed.output
    warning = "Claude Desktop does not pass on WEATHER_TOKEN: write its value into that file"
    assert (warning in done.stderr) == (warning in printed.stderr) == (host == "claude-desktop")
    # Where nobody has put a value, there is none.
    assert is_unset("WEATHER_TOKEN", value)


def test_a_value_the_user_has_written_stays_when_it_is_installed_again(place: Path) -> None:
    configured(place)
    install("claude-desktop")
    path = place / PLACES["claude-desktop"][0]
    whole = json.loads(path.read_text())
    mine = whole["mcpServers"]["dragoman"]
    mine["env"] = {"WEATHER_TOKEN": "very-secret", "MORE": "1"}
    mine["disabled"] = True
    path.write_text(json.dumps(whole))
    done = install("claude-desktop", "--wait-seconds", "10")
    entry = entry_in(path)
    assert entry["env"] == {"WEATHER_TOKEN": "very-secret", "MORE": "1"}
    assert entry["disabled"] is True
    assert entry["args"][-1] == "10"
    assert "very-secret" not in done.output
    assert "WEATHER_TOKEN" not in done.stderr


def test_an_entry_of_another_kind_gives_way(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {"dragoman": {"url": "http://127.0.0.1:1/mcp"}}}')
    made = {"command": "/x", "args": []}
    assert write_entry(path, "cursor", made) == made == entry_in(path)


def test_a_value_is_missing_when_it_is_what_stood_in_the_file() -> None:
    assert all(is_unset("T", each) for each in ("", placeholder("T"), "${T}", "${env:T}", "${T:-}"))
    assert not is_unset("T", "token")


# -- how it is started -------------------------------------------------------------------------------------------------


def test_the_script_that_was_typed_is_what_the_host_starts(tmp_path: Path) -> None:
    script = tmp_path / "dragoman"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    assert launch_command("x", environ={}, program=str(script)) == [str(script), "mcp", "x"]


def test_without_a_script_the_interpreter_starts_it_without_the_modules_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    assert launch_command("x", environ={}, program="main.py") == [
        sys.executable,
        "-P",
        "-m",
        "dragoman.cli.main",
        "mcp",
        "x",
    ]


@pytest.mark.parametrize("in_cache", ["archive-v0/dK3x", "environments-v2/dragoman-1f", "builds-v0/.tmpAb"])
def test_what_uvx_has_started_is_started_by_uvx_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_cache: str
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "uv" / in_cache))
    uvx = tmp_path / "bin" / "uvx"
    uvx.parent.mkdir()
    with pytest.raises(ConfigError, match="uvx is not found"):
        launch_command(environ={"PATH": str(uvx.parent)})
    uvx.write_text("#!/bin/sh\n")
    uvx.chmod(0o755)
    expected = [str(uvx), "--from", requirement("mcp"), "dragoman", "mcp", URL]
    assert launch_command(URL, environ={"PATH": str(uvx.parent)}) == expected
    assert launch_command(URL, environ={"PATH": "", "UV": str(uvx.with_name("uv"))}) == expected


def test_a_cache_that_is_elsewhere_is_known_by_its_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "cache" / "whatever"))
    with pytest.raises(ConfigError, match="uvx is not found"):
        launch_command(environ={"PATH": "", "UV_CACHE_DIR": str(tmp_path / "cache")})


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["weather"], "`weather` is neither an agent's URL nor a name in [remotes]"),
        (["--config", "nope.toml"], "nope.toml: there is no such settings file"),
        (["--store", "kept.db"], "--store kept.db: must be"),
    ],
)
def test_what_the_host_could_not_start_is_not_installed(place: Path, args: list[str], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        install("cursor", *args)
    assert says in str(caught.value)
    assert not (place / "home" / ".cursor").exists()
