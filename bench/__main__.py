"""``make bench``: run every benchmark, or those that are named: ``python -m bench envs engines``."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
NOT_BENCHMARKS = {"__init__", "__main__", "timing"}


def main() -> None:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a user's px has its modules compiled
    known = sorted(p.stem for p in HERE.glob("*.py") if p.stem not in NOT_BENCHMARKS)
    chosen = sys.argv[1:] or known
    for name in chosen:
        if name not in known:
            sys.exit(f"there is no benchmark {name!r}; there are: {', '.join(known)}")
    for name in chosen:
        print(f"\n== {name}", flush=True)
        importlib.import_module(f"bench.{name}").main()


if __name__ == "__main__":
    main()
