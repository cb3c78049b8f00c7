"""Estimates pi in several tasks; each task can run in a sandbox of its own."""

import random

from metaflow import FlowSpec, Parameter, card, current, step
from metaflow.cards import Markdown


class PiFlow(FlowSpec):
    """Throw darts in several tasks, join them, draw a card."""

    shares = Parameter("shares", default=4, help="how many tasks share the work")
    darts = Parameter("darts", default=100_000, help="how many darts each of them throws")

    @step
    def start(self):
        """Give every task a seed of its own."""
        self.seeds = list(range(self.shares))
        self.next(self.throw, foreach="seeds")

    @step
    def throw(self):
        """Count the darts that land in the quarter circle."""
        luck = random.Random(self.input)
        self.hits = sum(luck.random() ** 2 + luck.random() ** 2 < 1 for _ in range(self.darts))
        with open("/etc/os-release", encoding="utf-8") as f:
            system = next(line.partition("=")[2].strip().strip('"') for line in f if line.startswith("PRETTY_NAME"))
        print(f"share {self.input}: {self.hits} of {self.darts} on {system}")
        self.next(self.join)

    @step
    def join(self, inputs):
        """Put the shares together."""
        self.pi = 4 * sum(i.hits for i in inputs) / (self.shares * self.darts)
        self.next(self.end)

    @card(type="blank")
    @step
    def end(self):
        """Show the result."""
        current.card.append(Markdown(f"# pi is about {self.pi:.5f}"))
        print(f"pi is about {self.pi:.5f}")


if __name__ == "__main__":
    PiFlow()
