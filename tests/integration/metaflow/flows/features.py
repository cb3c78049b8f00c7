"""One flow with most of what Metaflow has: the same artifacts must come out of every backend."""

import os
import sys

from metaflow import (
    FlowSpec,
    IncludeFile,
    JSONType,
    Parameter,
    Task,
    card,
    catch,
    current,
    environment,
    project,
    resources,
    retry,
    secrets,
    step,
    timeout,
)
from metaflow.cards import Markdown


@project(name="features")
class FeaturesFlow(FlowSpec):
    """Parameters, branches, foreach, retries, fallbacks, cards, secrets, switches and loops."""

    number = Parameter("number", default=3)
    table = Parameter("table", type=JSONType, default='{"a": 1}')
    text = IncludeFile("text", default=__file__, is_text=True)

    @environment(vars={"GREETING": "hello there"})
    @step
    def start(self):
        self.log = []
        self.greeting = os.environ.get("GREETING")
        self.included = len(self.text) > 100
        self.parameters = (self.number, self.table)
        print("out line")
        print("err line", file=sys.stderr)
        self.next(self.left, self.right)

    @card(type="default", id="mine")
    @step
    def left(self):
        current.card["mine"].append(Markdown("# A card"))
        self.side = "left"
        self.next(self.joined)

    @secrets(sources=[{"type": "inline", "id": "1", "options": {"env_vars": {"INLINE_SECRET": "from inline"}}}])
    @step
    def right(self):
        self.side = "right"
        self.from_secret = os.environ.get("INLINE_SECRET")
        self.next(self.joined)

    @step
    def joined(self, inputs):
        self.sides = sorted(i.side for i in inputs)
        self.from_secret = inputs.right.from_secret
        self.merge_artifacts(inputs, exclude=["side", "from_secret", "card"])
        self.next(self.split)

    @step
    def split(self):
        self.items = list(range(self.number))
        self.next(self.each, foreach="items")

    @resources(cpu=1)
    @retry(times=2, minutes_between_retries=0)
    @step
    def each(self):
        if self.input == 1 and current.retry_count == 0:
            raise ValueError("the first attempt of this split fails")
        self.square = self.input**2
        self.attempt = current.retry_count
        self.next(self.collected)

    @step
    def collected(self, inputs):
        self.squares = [i.square for i in inputs]
        self.attempts = [i.attempt for i in inputs]
        self.sides, self.greeting = inputs[0].sides, inputs[0].greeting
        self.from_secret, self.parameters = inputs[0].from_secret, inputs[0].parameters
        self.included = inputs[0].included
        self.next(self.caught)

    @catch(var="failure", print_exception=False)
    @retry(times=1, minutes_between_retries=0)
    @step
    def caught(self):
        raise RuntimeError("always")
        self.next(self.killed)

    @catch(var="death", print_exception=False)
    @step
    def killed(self):
        os.kill(os.getpid(), 9)
        self.next(self.slow)

    @catch(var="late", print_exception=False)
    @timeout(seconds=2)
    @step
    def slow(self):
        import time

        time.sleep(60)
        self.next(self.begin_loop)

    @step
    def begin_loop(self):
        self.failed_as = (
            type(self.failure.exception).__name__ if hasattr(self.failure, "exception") else str(self.failure)
        )
        self.died = self.death is not None
        self.was_late = self.late is not None
        self.count = 0
        self.next(self.loop)

    @step
    def loop(self):
        self.count += 1
        self.again = "again" if self.count < 3 else "enough"
        self.next({"again": self.loop, "enough": self.after}, condition="again")

    @step
    def after(self):
        self.seen = [current.flow_name, current.step_name, current.project_name, current.is_running_flow]
        self.me = Task(current.pathspec).id == current.task_id
        self.next(self.end)

    @step
    def end(self):
        print("squares", self.squares)


if __name__ == "__main__":
    FeaturesFlow()
