"""`bench` stands beside `src`, where only `python -m pytest` finds it by itself."""

import sys
from pathlib import Path

ROOT = str(Path(__file__).parents[3])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)
