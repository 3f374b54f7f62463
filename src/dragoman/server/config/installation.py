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
    package = package or Path(__file__).parents[2]
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


def install_line(*extras: str, packages: tuple[str, ...] = ()) -> str:
    """Return the shell command that adds extras of Dragoman, and other packages, to this environment."""
    words = [*_installer()]
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


def _installer() -> list[str]:
    """Return the command that installs into this environment, whether or not it is activated."""
    python = Path(sys.executable)
    pip = shutil.which("pip")
    if pip is not None and Path(pip).absolute().parent == python.parent:
        return ["pip", "install"]
    name = str(python.relative_to(Path.cwd()) if python.is_relative_to(Path.cwd()) else python)
    if find_spec("pip") is not None:
        return [name, "-m", "pip", "install"]
    if os.environ.get("VIRTUAL_ENV") == sys.prefix:
        return ["uv", "pip", "install"]
    return ["uv", "pip", "install", "--python", name]


def _quote(word: str) -> str:
    if os.name == "posix":
        return shlex.quote(word)
    return f'"{word}"' if set(word) & set(" []@&^()") else word
