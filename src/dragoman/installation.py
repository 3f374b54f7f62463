"""Where this copy of Dragoman was installed from, and the commands that install more of it.

Dragoman is on no package index yet, so `pip install 'dragoman[mcp]'` would not find it.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import url2pathname

# For a copy that does not know where it came from: a checkout beside the current folder, as in the guides. A release
# to a package index changes it to "dragoman", here and in the docs.
FALLBACK = "../dragoman"


class Installation(NamedTuple):
    """The origin of an installed copy: `{}` in `requirement` stands for the extras, as in `/src/dragoman{}`."""

    requirement: str
    is_editable: bool = False

    def with_extras(self, *extras: str) -> str:
        """Return what installers take for this copy with these extras, as in `/src/dragoman[mcp]`."""
        return self.requirement.replace("{}", f"[{','.join(extras)}]" if extras else "")


def find_installation(package: Path | None = None, metadata: Distribution | None = None) -> Installation:
    """Find out where this copy came from; tests pass the folder of its package, and its metadata.

    It is the checkout that the package lies in, else what `direct_url.json` of its metadata says (PEP 610), else a
    package index.
    """
    package = package or Path(__file__).parent
    checkout = package.parent.parent
    if package.parent.name == "src" and (checkout / "pyproject.toml").is_file():
        return Installation(f"{checkout}{{}}", is_editable=True)
    try:
        text = (metadata or distribution("dragoman")).read_text("direct_url.json")
    except PackageNotFoundError:
        return Installation(f"{FALLBACK}{{}}")
    if text is None:
        return Installation("dragoman{}")
    origin: dict[str, Any] = json.loads(text)
    url = str(origin["url"])
    if "dir_info" in origin:
        folder = url2pathname(urlsplit(url).path)
        return Installation(f"{folder}{{}}", is_editable=bool(origin["dir_info"].get("editable")))
    if "vcs_info" in origin:
        vcs: dict[str, str] = origin["vcs_info"]
        url = f"{vcs['vcs']}+{url}@{vcs.get('requested_revision') or vcs['commit_id']}"
    return Installation(f"dragoman{{}} @ {url}")


def requirement(*extras: str) -> str:
    """Return what installers take for this copy with extras, absolute and not quoted."""
    return find_installation().with_extras(*extras)


def install_line(*extras: str, packages: tuple[str, ...] = (), is_active: bool = False) -> str:
    """Return the shell command that adds extras of Dragoman, and other packages, to this environment.

    `is_active` says that the environment is active where the command will be run.
    """
    words = [*_installer(is_active=is_active)]
    if extras:
        installation = find_installation()
        words += ["-e"] if installation.is_editable else []
        words.append(installation.with_extras(*extras))
    return " ".join(map(_quote, (*words, *packages)))


def portable_line(*extras: str, packages: tuple[str, ...] = ()) -> str:
    """Return the shell command that installs Dragoman and other packages into whatever environment is active."""
    return " ".join(map(_quote, ("pip", "install", requirement(*extras), *packages)))


def package_line(package: str) -> str:
    """Return the shell command that adds a package of somebody else to this environment."""
    return install_line(packages=(package,))


def activate_line() -> str | None:
    """Return the shell command that activates this virtual environment; None if it is active, or there is none."""
    script = Path(sys.prefix, "bin" if os.name == "posix" else "Scripts", "activate")
    if sys.prefix == sys.base_prefix or _is_on_path("dragoman") or not script.is_file():
        return None
    return " ".join(map(_quote, ([".", _near(script)] if os.name == "posix" else [_near(script)])))


def _installer(*, is_active: bool) -> list[str]:
    """Return the command that installs into this environment."""
    has_pip = find_spec("pip") is not None
    if _is_on_path("pip") or (is_active and has_pip):
        return ["pip", "install"]
    python = _near(Path(sys.executable))
    if has_pip:
        return [python, "-m", "pip", "install"]
    if is_active or os.environ.get("VIRTUAL_ENV") == sys.prefix:
        return ["uv", "pip", "install"]
    return ["uv", "pip", "install", "--python", python]


def _is_on_path(program: str) -> bool:
    """True when a program is found by its name, and is that of this environment."""
    path = shutil.which(program)
    return path is not None and Path(path).absolute().parent == Path(sys.executable).parent


def _near(path: Path) -> str:
    """Return a path as short as it can be typed here."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _quote(word: str) -> str:
    if os.name == "posix":
        return shlex.quote(word)
    return f'"{word}"' if set(word) & set(" []@&^()") else word
