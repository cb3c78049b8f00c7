"""The app without its database."""

from importlib.metadata import version

import psycopg2
from shop import chart


def test_the_chart_has_a_bar_for_each_day() -> None:
    image = chart([(1, 10), (2, 20)])
    assert image.size == (60, 160)
    assert image.getpixel((20, 140)) == (70, 130, 180)


def test_psycopg2_was_built_against_a_real_libpq() -> None:
    assert psycopg2.__libpq_version__ >= 150000


def test_the_project_is_installed() -> None:
    assert version("shop") == "1.0.0"
