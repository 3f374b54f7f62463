"""Which resource of a fleet ends first: a simulation that reproduces what was measured, then larger fleets.

    python -m bench.scale_model           prints the tables of docs/scaling.md
    python -m bench.scale_model --check   compares the model with the measured points; exits 1 above 30 %
    python -m bench.scale_model --write   writes the tables into docs/scaling.md, if the check passes

The unit costs and points are in bench/scale.json, which `python -m bench.unit_costs --write` measures.
"""

from __future__ import annotations

import argparse
import sys

from bench import results
from bench.compare import RESULTS
from bench.scale import page
from bench.scale.check import compare_benchmarks, compare_larger, compare_points, table_text
from bench.scale.costs import Measured, load


def main() -> None:
    """Check, then say something about larger fleets."""
    options = _options()
    measured = load()
    is_near = _check(measured)
    if not is_near:
        sys.exit("the model is more than 30 % from what was measured: it says nothing about larger fleets")
    if options.write:
        page.write(measured)
    elif not options.check:
        for part in page.parts(measured).values():
            print(f"\n{part}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.scale_model", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only compare the model with what was measured")
    parser.add_argument("--write", action="store_true", help="write the tables into docs/scaling.md")
    return parser.parse_args()


def _check(measured: Measured) -> bool:
    is_near = table_text(compare_points(measured), "measured", "model", _show)
    _show("\nThe same points in docs/benchmarks.md, measured another time; they do not decide:")
    table_text(compare_benchmarks(measured, results.load(RESULTS)), "measured", "model", _show)
    _show("\nThe arithmetic for fleets that are too large to simulate, where both can be used:")
    return table_text(compare_larger(measured.costs), "simulation", "arithmetic", _show) and is_near


def _show(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    main()
