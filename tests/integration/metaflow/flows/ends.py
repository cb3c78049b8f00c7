"""Steps that end in unusual ways; the parameter says how."""

import ctypes
import os
import sys
import time

from metaflow import FlowSpec, Parameter, step


class EndsFlow(FlowSpec):
    """One step that succeeds, fails, crashes, hangs or eats memory."""

    how = Parameter("how", default="well")

    @step
    def start(self):
        print("begun", flush=True)
        if self.how == "fault":
            ctypes.string_at(0)
        if self.how == "exit":
            sys.exit(3)
        if self.how == "hang":
            time.sleep(600)
        if self.how == "memory":
            data = [b"x" * (1 << 20) for _ in range(4096)]
            print(len(data))
        if self.how == "raise":
            raise ValueError("on purpose")
        self.where = os.environ.get("METAFLOW_SANDBOX_BACKEND", "plain")
        self.next(self.end)

    @step
    def end(self):
        print("ended")


if __name__ == "__main__":
    EndsFlow()
