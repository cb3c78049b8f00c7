"""The card as a page: one HTML file without scripts, that loads nothing.  Every text in it is escaped.

Its size is bounded: packages and tasks beyond a number are counted and not shown.
"""

from __future__ import annotations

from html import escape
from statistics import median, quantiles
from typing import TYPE_CHECKING

from metaflow_extensions.sandbox.plugins.report.style import STYLE
from metaflow_extensions.sandbox.plugins.report.tasks import PHASES, duration, rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from metaflow_extensions.sandbox.plugins.report.facts import TaskFacts
    from metaflow_extensions.sandbox.plugins.report.tasks import Packages, Whole

MOST_ROWS = 50
"""Tasks that a page shows one by one.  Of more, it shows the slowest."""
MOST_KINDS = 5
"""Backends and images that a page names when the tasks of a foreach have different ones."""


def page(title: str, own: TaskFacts, packages: Packages, whole: Whole | None) -> str:
    parts = [f"<h1>Sandbox</h1><p class=path>{escape(title)}</p>", _facts(own), _bar_of(own)]
    if own.in_sandbox:
        parts.append(_packages(packages))
    if whole is not None:
        parts.append(_whole(whole))
    head = f"<meta charset=utf-8><meta name=viewport content='width=device-width'><title>{escape(title)}</title>"
    return f"<!doctype html><html lang=en><head>{head}<style>{STYLE}</style></head><body>{''.join(parts)}</body></html>"


def _facts(own: TaskFacts) -> str:
    lines = "".join(f"<tr><th scope=row>{escape(name)}<td>{escape(value)}" for name, value in rows(own))
    return f"<table class=facts>{lines}</table>"


def _bar_of(own: TaskFacts) -> str:
    return f"<div class=own>{_bar(own, own.total)}</div>{_legend()}" if own.total else ""


def _legend() -> str:
    names = "".join(f"<span><i class=p{i}></i>{name}</span>" for i, name in enumerate(PHASES))
    return f"<p class=legend>{names}</p>"


def _bar(task: TaskFacts, longest: float) -> str:
    """The phases of a task side by side, as wide as they took long."""
    pieces = [
        f"<i class=p{i} style=width:{100 * value / longest:.2f}% title='{name} {duration(value)}'></i>"
        for i, (name, value) in enumerate(zip(PHASES, task.times, strict=True))
        if value and longest
    ]
    return f"<div class=bar>{''.join(pieces)}</div>"


def _packages(packages: Packages) -> str:
    items = "".join(f"<li>{escape(name)} <b>{escape(version)}</b>" for name, version in packages.shown)
    left = packages.total - len(packages.shown)
    more = f"<p>and {left} more" if left else ""
    return f"<details><summary>{_counted(packages.total, 'package')}</summary><ul>{items}</ul>{more}</details>"


def _whole(whole: Whole) -> str:
    names = ", ".join(whole.steps)
    sandboxed = [task for task in whole.read if task.in_sandbox]
    parts = [f"<h2>{escape(names)}: {_counted(whole.total, 'task')}</h2>", *_notes(whole, sandboxed)]
    if sandboxed:
        parts += [_kinds(sandboxed), _statistics(sandboxed), _tasks(sandboxed)]
    return "".join(parts)


def _notes(whole: Whole, sandboxed: Sequence[TaskFacts]) -> Iterable[str]:
    if not whole.total:
        yield "<p>Their records are not in this sandbox, so nothing is known about them here."
        return
    if len(whole.read) < whole.total:
        yield f"<p>{len(whole.read):,} of them were read, evenly spread."
    if len(sandboxed) < len(whole.read):
        yield f"<p>{len(whole.read) - len(sandboxed):,} of those that were read ran without a sandbox."


def _kinds(tasks: Sequence[TaskFacts]) -> str:
    """What the tasks have in common: backends, images, limits."""
    lines = []
    for index, (name, _) in enumerate(_common(tasks[0])):
        found: dict[str, int] = {}
        for task in tasks:
            value = _common(task)[index][1]
            found[value] = found.get(value, 0) + 1
        lines.append(f"<tr><th scope=row>{name}<td>{_counts(found)}" if any(found) else "")
    return f"<table class=facts>{''.join(lines)}</table>"


def _common(task: TaskFacts) -> tuple[tuple[str, str], ...]:
    limits = dict(rows(task)).get("Limits", "")
    return ("Backend", task.backend), ("Image", task.image), ("sbx_id", task.sbx_id), ("Limits", limits)


def _counts(found: dict[str, int]) -> str:
    if len(found) == 1:
        return escape(next(iter(found)))
    most = sorted(found.items(), key=lambda item: -item[1])
    said = [f"{escape(value or 'none')} ({count:,})" for value, count in most[:MOST_KINDS]]
    left = len(most) - MOST_KINDS
    return "<br>".join([*said, *([f"and {left:,} more"] if left > 0 else [])])


def _statistics(tasks: Sequence[TaskFacts]) -> str:
    head = "".join(f"<th scope=col>{name}" for name in ("", "shortest", "median", "90 % below", "longest", "together"))
    lines = []
    for index, phase in enumerate(PHASES):
        values = [value for task in tasks if (value := task.times[index]) is not None]
        if values:
            high = quantiles(values, n=10, method="inclusive")[-1] if len(values) > 1 else values[0]
            numbers = (min(values), median(values), high, max(values), sum(values))
            cells = "".join(f"<td>{duration(number)}" for number in numbers)
            lines.append(f"<tr><th scope=row><i class='dot p{index}'></i>{phase}{cells}")
    return f"<table class=numbers><tr>{head}{''.join(lines)}</table>"


def _tasks(tasks: Sequence[TaskFacts]) -> str:
    shown, note = tasks, ""
    if len(tasks) > MOST_ROWS:
        shown = sorted(tasks, key=lambda task: -task.total)[:MOST_ROWS]
        note = f"<p>The {MOST_ROWS} slowest:"
    longest = max(task.total for task in shown)
    lines = [
        f"<tr><th scope=row>{escape(task.name)}<td class=time>{duration(task.total)}"
        f"<td class=wide>{_bar(task, longest)}<td class=id>{escape(task.sandbox_id)}"
        for task in shown
    ]
    head = "<th scope=col>Task<th scope=col>Time<th scope=col>Creating, starting, running<th scope=col>Sandbox"
    return f"{note}<table class=tasks><tr>{head}{''.join(lines)}</table>"


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
