"""The smallest flow that shows artifacts, live logs and a card."""

import os
import sys
import time

from metaflow import Config, FlowSpec, Task, card, current, step
from metaflow.cards import Markdown


class SmallFlow(FlowSpec):
    """Two steps."""

    config = Config("config", default_value='{"depth": 4}')

    @card(type="blank")
    @step
    def start(self):
        print("first line", flush=True)
        print("first error", file=sys.stderr, flush=True)
        time.sleep(float(os.environ.get("PAUSE", "0")))
        print("second line", flush=True)
        current.card.append(Markdown("# A card"))
        self.depth = self.config.depth
        self.mine = os.environ.get("MINE", "")
        self.keys = sorted(k for k in os.environ if k.endswith(("_API_KEY", "_TOKEN")))
        self.me = Task(current.pathspec).pathspec
        self.tags = sorted(current.tags)
        self.next(self.end)

    @step
    def end(self):
        print("depth", self.depth)


if __name__ == "__main__":
    SmallFlow()
