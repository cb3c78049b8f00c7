"""Steps that use what only the project's sandbox has, and say where they ran."""

import os
import shutil
import sys

from metaflow import FlowSpec, step


class ElsewhereFlow(FlowSpec):
    @step
    def start(self):
        import numpy as np
        import psycopg2

        self.libpq = psycopg2.__libpq_version__
        self.total = float(np.arange(1000.0).sum())
        self.python = sys.version
        self.pip = any(os.path.exists(os.path.join(path, "pip")) for path in sys.path)
        self.installer = shutil.which("pip") or shutil.which("uv")
        print("first line")
        self.next(self.end)

    @step
    def end(self):
        self.total += 1


if __name__ == "__main__":
    ElsewhereFlow()
