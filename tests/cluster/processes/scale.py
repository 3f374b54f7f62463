"""How long the long tests of a cluster are, and which run it is.

`CLUSTER_SCALE` makes everything shorter, such as 0.1, and `CLUSTER_SEED` makes it another run.
"""

from __future__ import annotations

import os

SCALE = float(os.environ.get("CLUSTER_SCALE", "1"))
SEED = int(os.environ.get("CLUSTER_SEED", "21"))


def times(number: int) -> range:
    """A range of so many, or fewer."""
    return range(max(1, int(number * SCALE)))
