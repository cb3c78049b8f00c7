"""Steps that end in every way there is."""

import os
import time

from metaflow import FlowSpec, Parameter, catch, retry, step, timeout


class EndsElsewhereFlow(FlowSpec):
    how = Parameter("how", default="well")
    width = Parameter("width", default=2)

    @step
    def start(self):
        if self.how == "raise":
            raise ValueError("on purpose")
        if self.how == "exit":
            os._exit(7)
        if self.how == "sleep":
            print("asleep", flush=True)
            time.sleep(600)
        self.next(self.late)

    @catch(var="too_late", print_exception=False)
    @timeout(seconds=61)
    @step
    def late(self):
        if self.how == "late":
            time.sleep(600)
        self.next(self.again)

    @retry(times=2, minutes_between_retries=0)
    @step
    def again(self):
        from metaflow import current

        if current.retry_count == 0:
            raise ValueError("the first attempt fails")
        self.attempt = current.retry_count
        self.items = list(range(self.width))
        self.next(self.wide, foreach="items")

    @step
    def wide(self):
        import numpy as np

        self.square = int(np.square(self.input))
        self.next(self.join)

    @step
    def join(self, inputs):
        self.squares = sorted(i.square for i in inputs)
        self.next(self.end)

    @step
    def end(self):
        pass


if __name__ == "__main__":
    EndsElsewhereFlow()
