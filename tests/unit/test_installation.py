"""Hints say what installs more of this copy of Dragoman, wherever it came from."""

from __future__ import annotations

import json
import os
import sys
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Any

import pytest

from dragoman import installation
from dragoman.installation import (
    activate_line,
    find_installation,
    install_line,
    package_line,
    requirement,
)

ROOT = Path(__file__).parents[2]


def installed(folder: Path, origin: dict[str, Any] | None) -> PathDistribution:
    """The metadata of a copy, as installers write it."""
    metadata = folder / "dragoman-0.1.0.dist-info"
    metadata.mkdir()
    if origin is not None:
        (metadata / "direct_url.json").write_text(json.dumps(origin))
    return PathDistribution(metadata)


@pytest.mark.parametrize(
    ("origin", "expected", "editable"),
    [
        ({"url": "file:///src/my%20dragoman", "dir_info": {}}, "/src/my dragoman[adk,mcp]", False),
        ({"url": "file:///src/dragoman", "dir_info": {"editable": True}}, "/src/dragoman[adk,mcp]", True),
        (
            {"url": "file:///tmp/dragoman-0.1.0-py3-none-any.whl", "archive_info": {}},
            "dragoman[adk,mcp] @ file:///tmp/dragoman-0.1.0-py3-none-any.whl",
            False,
        ),
        (
            {"url": "https://git.example/d", "vcs_info": {"vcs": "git", "commit_id": "c0", "requested_revision": "v1"}},
            "dragoman[adk,mcp] @ git+https://git.example/d@v1",
            False,
        ),
        (
            {"url": "https://git.example/d", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}},
            "dragoman[adk,mcp] @ git+https://git.example/d@c0ffee",
            False,
        ),
        (None, "dragoman[adk,mcp]", False),  # only what came from an index has no direct_url.json
    ],
)
def test_a_copy_is_extended_from_its_own_source(
    tmp_path: Path, origin: dict[str, Any] | None, expected: str, editable: bool
):
    found = find_installation(tmp_path / "site-packages" / "dragoman", installed(tmp_path, origin))
    assert (found.with_extras("adk", "mcp"), found.is_editable) == (expected, editable)


def test_a_checkout_is_extended_where_it_is(tmp_path: Path):
    (tmp_path / "pyproject.toml").write_text("")
    found = find_installation(tmp_path / "src" / "dragoman", installed(tmp_path, None))
    assert (found.with_extras("mcp"), found.is_editable) == (f"{tmp_path}[mcp]", True)
    assert found.with_extras() == str(tmp_path)


def test_these_tests_run_in_a_checkout():
    assert requirement("mcp") == f"{ROOT}[mcp]"


def test_the_command_is_the_installer_of_this_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for name in ("python", "pip"):
        (bin_folder / name).write_text("#!/bin/sh\n")
        (bin_folder / name).chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(bin_folder / "python"))
    monkeypatch.setenv("PATH", str(bin_folder))
    assert package_line("uvloop") == "pip install uvloop"
    assert install_line("mcp", packages=("pytest",)) == f"pip install -e '{ROOT}[mcp]' pytest"

    # Not activated: `pip` would be another environment's.
    monkeypatch.setenv("PATH", os.defpath)
    monkeypatch.setattr(installation, "find_spec", lambda name: object())
    assert package_line("uvloop") == f"{bin_folder}/python -m pip install uvloop"
    monkeypatch.chdir(tmp_path)
    assert package_line("uvloop") == "bin/python -m pip install uvloop"

    # Made by uv, it has no pip.
    assert install_line("mcp", is_active=True) == f"pip install -e '{ROOT}[mcp]'"
    monkeypatch.setattr(installation, "find_spec", lambda name: None)
    assert install_line("mcp", is_active=True) == f"uv pip install -e '{ROOT}[mcp]'"
    assert package_line("uvloop") == "uv pip install --python bin/python uvloop"
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    assert package_line("uvloop") == "uv pip install uvloop"


def test_a_virtual_environment_that_is_not_active_is_activated_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    folder = tmp_path / "my env" / "bin"
    folder.mkdir(parents=True)
    for name in ("python", "dragoman", "activate"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setattr(sys, "prefix", str(folder.parent))
    monkeypatch.setenv("PATH", os.defpath)
    monkeypatch.chdir(tmp_path)
    assert activate_line() == ". 'my env/bin/activate'"
    monkeypatch.setenv("PATH", str(folder))
    assert activate_line() is None
    monkeypatch.setenv("PATH", os.defpath)
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    assert activate_line() is None
