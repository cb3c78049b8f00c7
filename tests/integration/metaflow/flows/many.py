"""A wide foreach."""

import os

from metaflow import FlowSpec, Parameter, step


class ManyFlow(FlowSpec):
    """As many small tasks as asked for."""

    width = Parameter("width", default=50)

    @step
    def start(self):
        self.items = list(range(self.width))
        self.next(self.each, foreach="items")

    @step
    def each(self):
        self.sandbox = os.environ.get("METAFLOW_SANDBOX_ID")
        self.value = self.input * 2
        self.next(self.joined)

    @step
    def joined(self, inputs):
        self.total = sum(i.value for i in inputs)
        self.sandboxes = sorted({i.sandbox for i in inputs if i.sandbox})
        self.next(self.end)

    @step
    def end(self):
        pass


if __name__ == "__main__":
    ManyFlow()
