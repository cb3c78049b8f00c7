"""The page of a card: bounded, escaped, and right about what it was given."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

import pytest

from metaflow_extensions.sandbox.plugins.report import facts
from metaflow_extensions.sandbox.plugins.report.facts import TaskFacts
from metaflow_extensions.sandbox.plugins.report.page import MOST_ROWS, page
from metaflow_extensions.sandbox.plugins.report.tasks import (
    MOST_READ,
    Packages,
    Whole,
    duration,
    sample,
    shown_steps,
    whole,
)

NASTY = "<script>alert(1)</script><img src=x onerror=alert(2)>' onmouseover='x\""
NO_PACKAGES = Packages(0, ())


def task(number: int, name: str = "work", **more: Any) -> TaskFacts:
    return TaskFacts(f"{name}/{number}", "local", f"local-{number:016x}", "ab" * 32, times=(0.1, 0.5, number), **more)


class Tags(HTMLParser):
    """The tags of a page, and the names of all attributes."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


def test_names_from_users_are_texts() -> None:
    nasty = TaskFacts.read(
        NASTY,
        {
            facts.BACKEND: NASTY,
            facts.SANDBOX_ID: NASTY,
            facts.SBX_ID: NASTY,
            facts.IMAGE: NASTY,
            facts.LIMITS: json.dumps({"cpu": NASTY, "network": NASTY}),
            facts.TIMES[2]: "3",
        },
    )
    plain = task(1, limits={"cpu": "1", "network": "a"}, image="x")
    together = Whole((NASTY,), 2, (nasty, plain))
    shown = Tags(page(NASTY, nasty, Packages(1, ((NASTY, NASTY),)), together))
    known = Tags(page("t", plain, Packages(1, (("a", "1"),)), Whole(("work",), 2, (plain, task(2)))))
    assert (shown.tags - known.tags, shown.attributes - known.attributes) == (set(), set())


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "1e400", "", None, "x" * 10**6, {"a": 1}])
def test_a_time_that_is_none(value: object) -> None:
    found = TaskFacts.read("work/1", {facts.BACKEND: "local", facts.TIMES[2]: value})
    assert found.times == (None, None, None)
    assert "Running took" not in page("t", found, NO_PACKAGES, None)


@pytest.mark.parametrize("value", ["[1]", "{", "[" * 10**5, '{"cpu": "' + "x" * 10**5 + '"}', 7])
def test_limits_that_are_none(value: object) -> None:
    assert TaskFacts.read("work/1", {facts.LIMITS: value}).limits == {}


def test_a_hundred_thousand_tasks_stay_small() -> None:
    many = [task(number, limits={"cpu": str(number)}) for number in range(100_000)]
    shown = page(
        "t", many[0], Packages(100_000, (("a" * 100, "1" * 100),) * 400), Whole(("work",), len(many), tuple(many))
    )
    assert len(shown) < 256 * 1024
    assert shown.count("<tr><th scope=row>work/") == MOST_ROWS
    assert "work/99999<" in shown, "the slowest are there"
    assert "and 99,995 more" in shown, "limits that differ are counted"


def test_only_a_sample_of_them_is_read() -> None:
    class Task:
        reads = 0

        def __init__(self, number: int):
            self.id = str(number)

        @property
        def metadata_dict(self) -> dict[str, str]:
            Task.reads += 1
            return {facts.BACKEND: "local"}

    class Node:
        """A task whose run has one step with many tasks; stands in for Metaflow's client."""

        @property
        def parent(self) -> Any:
            return self

        def __getitem__(self, step: str) -> list[Task]:
            if step != "work":
                raise KeyError(step)
            return [Task(number) for number in range(100_000)][::-1]

    found = whole(Node(), ["work", "not-taken"])
    assert (found.total, len(found.read), Task.reads) == (100_000, MOST_READ, MOST_READ)
    assert found.read[1].name == "work/100"
    assert "1,000 of them were read" in page("t", task(1), NO_PACKAGES, found)


def test_a_sample_is_spread_evenly() -> None:
    assert sample([1, 2, 3], 3) == [1, 2, 3]
    assert sample(range(10), 5) == [0, 2, 4, 6, 8]


GRAPH = {
    "start": {"next": ["work"], "matching_join": "join"},
    "work": {"next": ["more"]},
    "more": {"next": ["join"]},
    "join": {"next": ["end"]},
    "end": {"next": []},
}


def test_a_join_shows_all_steps_between_the_split_and_itself() -> None:
    assert shown_steps("join", {}, GRAPH) == ("work", "more")
    assert shown_steps("work", None, GRAPH) == ()
    assert shown_steps("end", {"steps": ["more", "nonsense", ["x"]][:2]}, GRAPH) == ("more",)
    assert shown_steps("end", {"steps": "more"}, None) == ()


@pytest.mark.parametrize(
    ("value", "said"),
    [(0.0354, "35 ms"), (1.234, "1.23 s"), (61.5, "61.5 s"), (600, "10 min"), (432000, "5 days")],
)
def test_times_as_people_say_them(value: float, said: str) -> None:
    assert duration(value) == said
