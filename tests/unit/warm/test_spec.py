"""What is frozen behaves as frozen dataclasses do, and goes through JSON and back."""

from __future__ import annotations

import json

import pytest

from px.warm.spec import Frozen, Limits, Mount, RunSpec, User


class Point(Frozen):
    """Two numbers and a name."""

    x: int
    y: int = 2
    name: str = ""

    @property
    def total(self) -> int:
        return self.x + self.y


class Marked(Point):
    """A point with more to it."""

    marks: tuple[str, ...] = ()


class Moved(Point):
    """A point without anything more to it."""


def test_fields_by_place_by_name_and_by_default() -> None:
    point = Point(1, name="a")
    assert (point.x, point.y, point.name, point.total) == (1, 2, "a", 3)
    assert repr(point) == "Point(x=1, y=2, name='a')"


def test_equality_and_hash_are_by_value() -> None:
    assert Point(1) == Point(1, 2, "")
    assert Point(1) != Point(2)
    assert Point(1) != (1, 2, "")
    assert len({Point(1), Point(1, y=2), Point(3)}) == 2


def test_replace_makes_another() -> None:
    point = Point(1, 5)
    assert point.replace(x=3) == Point(3, 5)
    assert point.replace() == point
    assert point.x == 1
    with pytest.raises(TypeError, match="Point has the fields"):
        point.replace(z=1)


def test_frozen() -> None:
    point = Point(1)
    with pytest.raises(AttributeError, match="frozen"):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(AttributeError, match="frozen"):
        del point.y


@pytest.mark.parametrize(("values", "named"), [((), {}), ((1, 2, "a", 4), {}), ((1,), {"x": 1}), ((1,), {"z": 1})])
def test_what_does_not_fit_is_refused(values: tuple[object, ...], named: dict[str, object]) -> None:
    with pytest.raises(TypeError, match="Point has the fields"):
        Point(*values, **named)  # type: ignore[arg-type]


def test_fields_are_inherited_and_come_first() -> None:
    marked = Marked(1, marks=("a", "b"))
    assert (marked.x, marked.y, marked.name, marked.marks, marked.total) == (1, 2, "", ("a", "b"), 3)
    assert repr(marked) == "Marked(x=1, y=2, name='', marks=('a', 'b'))"
    assert Marked(1, 5, "n", ("a",)) == Marked(1, marks=("a",), name="n", y=5)
    assert marked.replace(x=2, marks=()) == Marked(2)
    with pytest.raises(TypeError, match="Marked has the fields"):
        Marked(marks=("a",))  # type: ignore[call-arg]


def test_what_is_of_another_class_is_not_the_same() -> None:
    assert Moved(1) == Moved(1, 2)
    assert Moved(1) != Point(1)
    assert repr(Moved(1)) == "Moved(x=1, y=2, name='')"


def test_json_has_every_field_by_its_name() -> None:
    assert Point(1).as_json() == {"x": 1, "y": 2, "name": ""}
    for point in (Point(1), Marked(1, 5, "n", ("a", "b")), Moved(3)):
        written = json.loads(json.dumps(point.as_json()))
        assert type(point).from_json(written) == point


@pytest.mark.parametrize("raw", [{}, {"y": 1}, {"x": 1, "z": 2}])
def test_json_that_does_not_fit_is_refused(raw: dict[str, object]) -> None:
    with pytest.raises(TypeError, match="Point has the fields"):
        Point.from_json(raw)


def test_lists_of_a_file_are_tuples_again() -> None:
    assert Marked.from_json({"x": 1, "marks": ["a"]}) == Marked(1, marks=("a",))


def test_a_run_needs_little_and_has_no_bounds() -> None:
    spec = RunSpec(("/layer",), ("true",), {})
    assert (spec.cwd, spec.home, spec.network, spec.user) == ("/app", "/home/px", True, User(1000, 1000, "px"))
    assert not spec.limits
    assert spec.replace(mounts=(Mount("/a", "/b"),)).mounts[0].read_only is False
    assert [bool(limits) for limits in (Limits(), Limits(memory=1), Limits(cpus=0.5), Limits(pids=0))] == [
        False, True, True, True,
    ]  # fmt: skip
