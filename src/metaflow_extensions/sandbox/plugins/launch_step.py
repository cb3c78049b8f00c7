"""What the launch server does with the run that it was forked from: get ready once, then run `sandbox step`."""

from __future__ import annotations

import sys

from metaflow._vendor import click
from metaflow.exception import MetaflowException

from metaflow_extensions.sandbox.plugins import backends


class StepLauncher:
    """Runs the command of one task in a fork of the run, as a process of its own would run it."""

    def __init__(self, backend: str, script: int):
        """``script``: where, in the command of a task, the flow's file is."""
        self._backend, self._script = backend, script
        self._context = click.get_current_context()

    def prepare(self) -> None:
        """Load what every launcher needs, and open no connection: those that the run has open are its own."""
        backends.get_remote_backend(self._backend).load()
        obj = self._context.obj
        self._runs = obj.flow_datastore
        obj.flow_datastore = type(self._runs)(
            self._runs.flow_name,
            self._runs.environment,
            self._runs.metadata,
            self._runs.logger,
            self._runs.monitor,
            storage_impl=type(self._runs._storage_impl),
            ds_root=self._runs.datastore_root,
        )
        if self._runs.TYPE == "s3":
            _ = obj.flow_datastore._storage_impl.s3_client.client

    def launch(self, command: list[str]) -> None:
        from metaflow.cli import print_metaflow_exception, print_unknown_exception

        sys.argv = command[self._script :]
        arguments = sys.argv[command_index(sys.argv) + 2 :]
        group = self._context.find_root().command.get_command(self._context, "sandbox")
        step = group.get_command(self._context, "step")
        try:
            with step.make_context("step", arguments, parent=self._context) as context:
                step.invoke(context)
        except MetaflowException as e:
            print_metaflow_exception(e)
            sys.exit(1)
        except Exception as e:  # noqa: BLE001 - as Metaflow's own command line does
            print_unknown_exception(e)
            sys.exit(1)


def command_index(argv: list[str]) -> int:
    """Where Metaflow's own options end and `sandbox step` begins."""
    return next(i for i in range(1, len(argv)) if argv[i : i + 2] == ["sandbox", "step"])
