"""Entry point of the guard process: `python -I -S main.py SOCKET OPEN_FILES`.

Run by its path, it imports its own package as `guard` instead of importing Dragoman.
"""

from __future__ import annotations

import os.path
import sys

TYPE_CHECKING = False

if __name__ == "__main__":
    if TYPE_CHECKING:
        from dragoman.agents.process.guard.server import main
    else:
        # Appended last, so that nothing there can shadow a module of the standard library.
        sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120 - pathlib is slow to import
        from guard.server import main
    main(int(sys.argv[1]), int(sys.argv[2]))
