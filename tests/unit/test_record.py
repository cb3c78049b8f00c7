"""Records behave as frozen dataclasses do."""

from __future__ import annotations

import pytest

from px.record import Record


class Point(Record):
    """Two numbers and a name."""

    x: int
    y: int = 2
    name: str = ""

    @property
    def total(self) -> int:
        return self.x + self.y


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
    assert point._replace(x=3) == Point(3, 5)
    assert point.x == 1


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
