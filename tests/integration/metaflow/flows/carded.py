"""A foreach of twenty with cards: the sandbox's own, and Metaflow's with a table about the sandbox."""

from metaflow import FlowSpec, Parameter, card, current, step

from metaflow_extensions.sandbox.plugins.report.component import SandboxInfo


class CardedFlow(FlowSpec):
    width = Parameter("width", default=20)

    @step
    def start(self):
        self.items = list(range(self.width))
        self.next(self.work, foreach="items")

    @card(type="sandbox")
    @card(type="default", id="plain")
    @step
    def work(self):
        current.card["plain"].append(SandboxInfo())
        self.value = self.input * 2
        self.next(self.join)

    @card(type="sandbox")
    @step
    def join(self, inputs):
        self.total = sum(i.value for i in inputs)
        self.next(self.end)

    @step
    def end(self):
        pass


if __name__ == "__main__":
    CardedFlow()
