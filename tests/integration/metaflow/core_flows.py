"""Small flows, one for each feature that Metaflow's own core tests cover; each must end the same, plain and sandboxed.

Those tests live in Metaflow's source repository and are not in its distributions, so these are written anew.  A flow is
the body of a class; ``expression`` is what the client says about the finished run.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent, indent

HEAD = """\
import os, sys, time, ctypes
from metaflow import *
from metaflow.cards import Markdown
CONSTANT = 42

class CoreFlow(FlowSpec):
"""
TAIL = "\n\nif __name__ == '__main__':\n    CoreFlow()\n"
LAST = "run['end'].task.data"


@dataclass(frozen=True)
class Core:
    """One feature."""

    name: str
    body: str
    expression: str
    arguments: tuple[str, ...] = ()
    fails: bool = False
    then_resume: bool = False

    @property
    def source(self) -> str:
        return HEAD + indent(dedent(self.body).strip("\n"), "    ") + TAIL


def steps(*parts: str) -> str:
    """Steps in a line: each part is the body of one; the names are start, s1, s2 … end."""
    names = ["start", *(f"s{i}" for i in range(1, len(parts) - 1)), "end"]
    out = []
    for i, (name, body) in enumerate(zip(names, parts, strict=True)):
        lines = dedent(body).strip("\n").split("\n")
        decorators = [line for line in lines if line.startswith("@")]
        rest = [line for line in lines if line.strip() and not line.startswith("@")] or ["pass"]
        after = [f"self.next(self.{names[i + 1]})"] if i + 1 < len(names) else []
        out += [*decorators, "@step", f"def {name}(self):", *(f"    {line}" for line in [*rest, *after])]
    return "\n".join(out)


FLOWS = [
    Core(
        "artifacts",
        steps("self.a = {'x': [1, 2]}\nself.b = b'bytes'.hex()", "self.a['y'] = 3", ""),
        f"[{LAST}.a, {LAST}.b]",
    ),
    Core("constants", "limit = 7\n" + steps("self.seen = self.limit + CONSTANT", ""), f"{LAST}.seen"),
    Core("large artifact", steps("self.a = os.urandom(1) * (30 << 20)", "self.n = len(self.a)", ""), f"{LAST}.n"),
    Core(
        "large log",
        steps("for i in range(3000): print('line', i, 'x' * 200)", ""),
        "[len(run['start'].task.stdout.splitlines()), run['start'].task.stdout.splitlines()[-1]]",
    ),
    Core(
        "unicode log",
        steps("print('zażółć 日本'); print('ünï', file=sys.stderr)", ""),
        "[run['start'].task.stdout, run['start'].task.stderr]",
    ),
    Core(
        "parameters",
        "n = Parameter('n', type=int)\nlate = Parameter('late', default=lambda context: context.flow_name)\n"
        + steps("self.all = [self.n, self.late]", ""),
        f"{LAST}.all",
        ("--n", "9"),
    ),
    Core(
        "tags",
        steps("self.t = sorted(t for t in current.tags if t.startswith('mine'))", ""),
        f"{LAST}.t",
        ("--tag", "mine1", "--tag", "mine2"),
    ),
    Core(
        "tag mutation in a step",
        steps("Run(current.flow_name + '/' + current.run_id, _namespace_check=False).add_tag('added')", ""),
        "'added' in run.user_tags",
    ),
    Core(
        "current",
        steps(
            "self.c = [current.flow_name, current.step_name, current.retry_count, current.username]",
            "",
        ),
        f"{LAST}.c",
    ),
    Core(
        "exception caught",
        steps("@catch(var='e')\nraise KeyError('k')", "self.n = str(self.e)", ""),
        f"'k' in {LAST}.n",
    ),
    Core(
        "segmentation fault caught",
        steps("@catch(var='e')\nctypes.string_at(0)", "self.n = self.e is not None", ""),
        f"{LAST}.n",
    ),
    Core(
        "retries",
        steps("@retry(times=3, minutes_between_retries=0)\nself.n = current.retry_count\nassert self.n == 2", ""),
        f"{LAST}.n",
    ),
    Core(
        "failure",
        steps("raise ValueError('no')", ""),
        "[run.successful, 'ValueError: no' in run['start'].task.stderr]",
        fails=True,
    ),
    Core(
        "timeout",
        steps("@catch(var='e')\n@timeout(seconds=1)\ntime.sleep(30)", "self.n = self.e is not None", ""),
        f"{LAST}.n",
    ),
    Core(
        "environment",
        steps("@environment(vars={'A': 'b c', 'D': 1})\nself.n = [os.environ['A'], os.environ['D']]", ""),
        f"{LAST}.n",
    ),
    Core(
        "card",
        steps("@card(type='blank', id='a')\n@card(type='default')\ncurrent.card['a'].append(Markdown('hello'))", ""),
        "sorted(c.type for c in __import__('metaflow.cards').cards.get_cards(run['start'].task))",
    ),
    Core(
        "nested foreach",
        """
        @step
        def start(self):
            self.xs = [1, 2]
            self.next(self.a, foreach='xs')
        @step
        def a(self):
            self.ys = 'ab'
            self.next(self.b, foreach='ys')
        @step
        def b(self):
            self.v = [f.index for f in self._foreach_stack]
            self.stack = [str(s[2]) for s in self.foreach_stack()]
            self.next(self.j)
        @step
        def j(self, inputs):
            self.vs = [i.stack for i in inputs]
            self.next(self.k)
        @step
        def k(self, inputs):
            self.all = [i.vs for i in inputs]
            self.next(self.end)
        @step
        def end(self): pass
        """,
        f"{LAST}.all",
    ),
    Core(
        "merge of artifacts",
        """
        @step
        def start(self):
            self.common = 1
            self.next(self.a, self.b)
        @step
        def a(self):
            self.x = 'a'
            self.next(self.j)
        @step
        def b(self):
            self.y = 'b'
            self.next(self.j)
        @step
        def j(self, inputs):
            self.merge_artifacts(inputs)
            self.next(self.end)
        @step
        def end(self): pass
        """,
        f"[{LAST}.common, {LAST}.x, {LAST}.y]",
    ),
    Core(
        "switch inside foreach",
        """
        @step
        def start(self):
            self.xs = [1, 2, 3]
            self.next(self.pick, foreach='xs')
        @step
        def pick(self):
            self.kind = 'odd' if self.input % 2 else 'even'
            self.next({'odd': self.odd, 'even': self.even}, condition='kind')
        @step
        def odd(self):
            self.r = -self.input
            self.next(self.meet)
        @step
        def even(self):
            self.r = self.input * 10
            self.next(self.meet)
        @step
        def meet(self):
            self.next(self.j)
        @step
        def j(self, inputs):
            self.rs = sorted(i.r for i in inputs)
            self.next(self.end)
        @step
        def end(self): pass
        """,
        f"{LAST}.rs",
    ),
    Core(
        "recursion",
        """
        @step
        def start(self):
            self.n = 0
            self.next(self.loop)
        @step
        def loop(self):
            self.n += 1
            self.more = 'y' if self.n < 4 else 'n'
            self.next({'y': self.loop, 'n': self.end}, condition='more')
        @step
        def end(self): pass
        """,
        f"[{LAST}.n, len(list(run['loop']))]",
    ),
    Core(
        "resume",
        steps("self.n = 1", "assert current.origin_run_id is not None, 'only after resume'\nself.n += 1", ""),
        f"[{LAST}.n, run.successful]",
        fails=True,
        then_resume=True,
    ),
    Core(
        "ancestors",
        steps("", "", ""),
        "[[t.parent.id for t in run['end'].task.parent_tasks], [t.parent.id for t in run['start'].task.child_tasks]]",
    ),
    Core(
        "configuration",
        "c = Config('c', default_value='{\"a\": {\"b\": 2}}')\n" + steps("self.n = self.c.a.b", ""),
        f"{LAST}.n",
    ),
    Core(
        "subprocesses",
        steps(
            "import subprocess\nself.n = subprocess.check_output([sys.executable, '-c', 'print(5)']).decode()",
            "",
        ),
        f"{LAST}.n",
    ),
    Core(
        "include file",
        "t = IncludeFile('t', default=__file__)\n" + steps("self.n = 'CoreFlow' in self.t", ""),
        f"{LAST}.n",
    ),
]
