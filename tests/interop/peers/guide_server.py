"""Serves what a guide shows: a file that has an `app`, or an `agent` of Dragoman's.

Runs in Dragoman's own environment, with a2a-sdk from an environment under .peers/ behind it:
guide_server.py SITE_PACKAGES FILE [PORT]
"""

import site
import sys
from pathlib import Path
from typing import Any

# Last on the path: what both environments have is Dragoman's.
site.addsitedir(sys.argv.pop(1))

from serving import serve

FILE = Path(sys.argv.pop(1))
SHOWN = "http://127.0.0.1:8080"


def app_at(url: str) -> Any:
    sys.path.insert(0, str(FILE.parent))
    values: dict[str, Any] = {"__name__": FILE.stem, "__file__": str(FILE)}
    exec(compile(FILE.read_text(encoding="utf-8").replace(SHOWN, url), str(FILE), "exec"), values)
    return values["app"] if "app" in values else values["agent"].app(store="memory:", drain=1)


if __name__ == "__main__":
    serve(app_at)
