"""The table of what tasks of Metaflow need, and what an image says about it."""

from __future__ import annotations

import argparse
import inspect
import tomllib

import pytest
from metaflow.metaflow_environment import MetaflowEnvironment
from packaging.utils import canonicalize_name
from packaging.version import Version

from px.cli.commands.pack_image import configure
from px.errors import PxError
from px.sandbox.labels import task_labels, tasks_in
from px.workflow.tasks.packages import Tasks, datastores, task_pins
from tests.conftest import REPO

TABLE = tomllib.loads((REPO / "src" / "px" / "data" / "tasks.toml").read_text())


def test_the_table_has_two_parts_and_plain_names() -> None:
    assert set(TABLE) == {"datastores", "pins"}
    for name, version in task_pins().items():
        assert name == canonicalize_name(name)
        assert str(Version(version)) == version
    assert list(task_pins()) == sorted(task_pins())


@pytest.mark.parametrize("datastore", datastores())
def test_everything_that_metaflow_would_install_is_pinned(datastore: str) -> None:
    said = inspect.getsource(MetaflowEnvironment._get_install_dependencies_cmd)
    for name in TABLE["datastores"][datastore]:
        assert f'"{name}"' in said
        assert name in task_pins()


def test_nothing_that_metaflow_would_install_is_forgotten() -> None:
    commands = {d: MetaflowEnvironment(None)._get_install_dependencies_cmd(d) for d in datastores()}
    for datastore, command in commands.items():
        words = command.partition("pip install")[2].partition(";")[0].split()
        assert {w for w in words if not w.startswith("-")} == set(TABLE["datastores"][datastore])


@pytest.mark.parametrize("pin", ["boto3", "boto3==1.0;x", "../x==1", "boto3 @ file:///x", "-r /etc/passwd==1", "=="])
def test_an_image_that_lies_about_its_packages(pin: str) -> None:
    with pytest.raises(PxError, match="PX923"):
        Tasks("s3", (pin,))
    with pytest.raises(PxError, match="PX040"):
        Tasks(f"s3{pin}")


def test_labels_say_what_an_image_is_for() -> None:
    labels = task_labels("s3", ["boto3==1.0", "requests==2.0"])
    assert tasks_in(labels) == ("s3", ("boto3==1.0", "requests==2.0"), False)
    assert tasks_in(task_labels("gs", [], apt=True)) == ("gs", (), True)
    assert tasks_in({}) is None


def test_the_flag_knows_every_datastore() -> None:
    parser = argparse.ArgumentParser()
    configure(parser)
    flag = next(a for a in parser._actions if "--metaflow" in a.option_strings)
    assert flag.choices == datastores()
