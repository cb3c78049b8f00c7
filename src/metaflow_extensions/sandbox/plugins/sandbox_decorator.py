"""``@sandbox``, ``@daytona`` and ``@e2b``: a compute backend for Metaflow steps.

The same hooks as ``@batch``: check early, upload the code package once, replace the command of a task.  A
remote backend replaces it by ``sandbox step``, which delegates; the local one puts its sandbox around the
task's own command, which needs no second start of Metaflow.
"""

from __future__ import annotations

import atexit
import gc
import os
import platform
import sys
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from metaflow.decorators import StepDecorator
from metaflow.exception import MetaflowException

from metaflow_extensions.sandbox.plugins import backends
from metaflow_extensions.sandbox.plugins.backend import (
    LABEL,
    BackendError,
    Network,
    Resources,
    SandboxConfig,
    Unusable,
)
from metaflow_extensions.sandbox.plugins.sandbox_env import forwarded

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from metaflow_extensions.sandbox.plugins.launch_server import LaunchServer

WORKLOAD = "METAFLOW_SANDBOX_WORKLOAD"
METADATA = {
    "sandbox-backend": "METAFLOW_SANDBOX_BACKEND",
    "sandbox-id": "METAFLOW_SANDBOX_ID",
    "sandbox-image": "METAFLOW_SANDBOX_SBX_ID",
}
DEPLOYERS = ("argo-workflows", "step-functions", "airflow")
HIDDEN = "***"
_TIMEOUT_GRACE = 10


class SandboxException(MetaflowException):
    """A failure of the sandbox, told apart from a failure of the step."""

    headline = "Sandbox error"

    def __init__(self, error: BackendError | str):
        super().__init__(str(error))


class SandboxDecorator(StepDecorator):
    """
    Specifies that this step runs in a sandbox: on this machine, or at a provider.

    Parameters
    ----------
    backend : str, default METAFLOW_SANDBOX_BACKEND, else "local"
        "local", "daytona" or "e2b".
    cpu : float, optional
        Number of CPUs. If `@resources` is also present, the maximum of the two is used.
    memory : int, optional
        Memory in MB. If `@resources` is also present, the maximum of the two is used.
    gpu : int, optional
        Number of GPUs, where the backend has them.
    disk : int, optional
        Disk in MB, where the backend can choose it.
    image : str, optional
        local: a px base ("debian-12") or the directory of a px project; daytona: an image or "snapshot:NAME";
        e2b: a template or an image.
    timeout : int, optional
        Seconds after which the step is ended. `@timeout` counts too; the shorter of the two holds.
    env : Dict[str, str], optional
        Variables for the step. For secrets use `@secrets` or METAFLOW_SANDBOX_FORWARD instead.
    network : bool or str, default True
        False cuts the network off; a string lists the only addresses that may be reached, by commas.
    """

    name = "sandbox"
    defaults: ClassVar[dict[str, Any]] = {
        "backend": None,
        "cpu": None,
        "memory": None,
        "gpu": None,
        "disk": None,
        "image": None,
        "timeout": None,
        "env": None,
        "network": None,
        "executable": None,
    }
    supports_conda_environment = True
    target_platform = "linux-aarch64" if platform.machine().lower() in ("aarch64", "arm64") else "linux-64"

    # Uploaded once for all steps and all backends of a run.
    package_metadata: ClassVar[str | None] = None
    package_sha: ClassVar[str | None] = None
    package_url: ClassVar[str | None] = None

    # Of this run; False where none could be started.
    launch_server: ClassVar[LaunchServer | Literal[False] | None] = None

    def step_init(
        self,
        flow: Any,
        graph: Any,
        step_name: str,
        decorators: Iterable[Any],
        environment: Any,
        flow_datastore: Any,
        logger: Any,
    ) -> None:
        self._step_name = step_name
        self._flow_datastore = flow_datastore
        self._decorators = decorators
        self._environment = environment
        self._retried = False
        self.attributes["backend"] = self.attributes["backend"] or _setting("SANDBOX_BACKEND")
        self.attributes["image"] = self.attributes["image"] or _setting("SANDBOX_IMAGE")
        self.attributes.update(_merged_resources(decorators, self))
        try:
            self.user_env = self._take_env()
            self.time_limit = _time_limit(decorators, _number(self.attributes, "timeout", int))
            if os.environ.get(WORKLOAD) or _command() == "step":
                return  # inside the sandbox, or the fallback of @catch: everything was checked by the launcher
            self._check(graph[step_name], step_name, flow_datastore)
        except BackendError as e:
            raise SandboxException(e) from None

    def _take_env(self) -> dict[str, str]:
        """Attributes are stored with every run: leave the names there, and keep the values out."""
        given = self.attributes["env"] or {}
        if not isinstance(given, dict) or any(
            not str(k) or "=" in str(k) or "\0" in f"{k}{v}" for k, v in given.items()
        ):
            raise Unusable(
                "env= is not a dictionary of names and values.",
                fix=[
                    f'In code: @{self.name}(env={{"NAME": "value"}})',
                    f'On the command line: --with \'{self.name}:env={{"NAME": "value"}}\'',
                ],
            )
        env = {str(k): str(v) for k, v in given.items()}
        if env and self.statically_defined:
            self.attributes["env"] = dict.fromkeys(env, HIDDEN)
        return env

    def _check(self, node: Any, step_name: str, flow_datastore: Any) -> None:
        name = str(self.attributes["backend"])
        if _command() in DEPLOYERS:
            raise Unusable(
                f"The step {step_name} has @{self.name}, and {_command()} would run it without: sandboxes are started "
                "by `run`, not by a scheduler.",
                fix=[
                    f"Remove @{self.name} from the step and say `--with sandbox` when you run it",
                    "Or run it here: python flow.py run",
                ],
                read="docs/tutorial/metaflow.md",
            )
        backend = backends.get_backend(name)
        if self.defaults["backend"] not in (None, name):
            raise Unusable(
                f"@{self.name} runs steps at {self.name}, and not with the backend {name}.",
                fix=[f"Say it as --with sandbox:backend={name}, or in code @sandbox(backend='{name}')"],
            )
        if backend.remote:
            _require_remote_datastore(self.name, name, flow_datastore.TYPE)
            if getattr(node, "parallel_step", False):
                raise Unusable(
                    f"The step {step_name} is @parallel: its nodes must reach each other, and {name} sandboxes cannot.",
                    fix=[
                        "Run it on this machine: python flow.py run --with sandbox:backend=local",
                        "Or use foreach instead of num_parallel",
                    ],
                )
        forwarded(os.environ, _setting("SANDBOX_FORWARD") or "")
        setting_number("SANDBOX_INFRA_RETRIES", least=0)
        config = self.config(labels={})
        backend.check(config)
        if not config.network.allowed and flow_datastore.TYPE != "local":
            raise Unusable(
                f"network=False would cut the step {step_name} off from its {flow_datastore.TYPE} datastore.",
                fix=[
                    "Use the local datastore: python flow.py --datastore=local run",
                    "Or remove network=False from the step",
                ],
            )

    def config(self, labels: Mapping[str, str]) -> SandboxConfig:
        """What the backend is told; raises Unusable for values that make no sense."""
        return SandboxConfig(
            image=self.attributes["image"],
            resources=Resources(
                cpu=_number(self.attributes, "cpu", float),
                memory_mb=_number(self.attributes, "memory", int),
                gpu=_number(self.attributes, "gpu", int) or None,
                disk_mb=_number(self.attributes, "disk", int),
            ),
            network=parse_network(self.attributes["network"]),
            labels={LABEL: "metaflow", **labels},
            lease_seconds=setting_number("SANDBOX_LEASE_SECONDS", least=1),
            create_seconds=setting_number("SANDBOX_CREATE_SECONDS", least=1),
        )

    @property
    def is_local(self) -> bool:
        return self.attributes["backend"] not in backends.REMOTE

    def add_to_package(self) -> list[tuple[str, str]]:
        if self.is_local or os.environ.get(WORKLOAD):
            return []
        from metaflow_extensions.sandbox.plugins.package_bytecode import compiled_modules

        return list(compiled_modules())

    def runtime_init(self, flow: Any, graph: Any, package: Any, run_id: str) -> None:
        if self.is_local and not os.environ.get(WORKLOAD):
            backends.get_backend("local").sandboxes({})  # forgets those whose launchers were killed
        self._flow, self._package, self._run_id = flow, package, run_id

    def runtime_task_created(
        self, task_datastore: Any, task_id: str, split_index: Any, input_paths: Any, is_cloned: bool, ubf_context: Any
    ) -> None:
        self._task_id = task_id
        if not is_cloned and not self.is_local:
            self._save_package_once(self._flow_datastore, self._package)

    def runtime_step_cli(self, cli_args: Any, retry_count: int, max_user_code_retries: int, ubf_context: Any) -> None:
        self._retried = self._retried or retry_count > 0
        # After the last attempt of the user's code only the fallback of @catch is left: it runs here.
        if os.environ.get(WORKLOAD) or retry_count > max_user_code_retries:
            return
        try:
            if self.is_local:
                self._enter_locally(cli_args)
            else:
                self._delegate(cli_args)
        except BackendError as e:
            raise SandboxException(e) from None

    def _enter_locally(self, cli_args: Any) -> None:
        from metaflow_extensions.sandbox.plugins.local_entrypoint import enter

        enter(self, cli_args)

    def _delegate(self, cli_args: Any) -> None:
        cli_args.commands = ["sandbox", "step"]
        cli_args.command_args += [self.package_metadata, self.package_sha, self.package_url]
        options = {k: v for k, v in self.attributes.items() if k not in ("env", "network") and v is not None}
        cli_args.command_options.update(options)
        cli_args.command_options["decorator"] = self.name
        cli_args.command_options["run-time-limit"] = self.time_limit
        if self.attributes["network"] is not None:
            cli_args.command_options["network"] = str(self.attributes["network"])
        launcher = [sys.executable, *cli_args.entrypoint[1:]]
        server = self._server(len(launcher) - 1)
        cli_args.entrypoint = PinnedEntrypoint(server.command(launcher) if server else launcher)

    def _server(self, script: int) -> LaunchServer | None:
        """The server that forks this run's launchers, started before the first of them."""
        from metaflow_extensions.sandbox.plugins import launch_server
        from metaflow_extensions.sandbox.plugins.launch_step import StepLauncher

        base = SandboxDecorator
        if base.launch_server is None:
            launcher = StepLauncher(str(self.attributes["backend"]), script)
            base.launch_server = launch_server.start(launcher.prepare, launcher.launch) or False
        return base.launch_server or None

    def runtime_finished(self, exception: Any) -> None:
        """Sweep up what killed tasks could not: runs after the last worker is gone."""
        base = SandboxDecorator
        if base.launch_server:
            base.launch_server.stop(wait=bool(exception or self._retried))
            base.launch_server = None
        if not (exception or self._retried) or not hasattr(self, "_run_id"):
            return
        from metaflow_extensions.sandbox.plugins.sandbox_reaper import reap

        labels = {LABEL: "metaflow", "flow": self._flow.name, "run": str(self._run_id), "step": self._step_name}
        for line in reap(str(self.attributes["backend"]), labels):
            sys.stderr.write(line + "\n")

    def task_pre_step(
        self,
        step_name: str,
        task_datastore: Any,
        metadata: Any,
        run_id: str,
        task_id: str,
        flow: Any,
        graph: Any,
        retry_count: int,
        max_user_code_retries: int,
        ubf_context: Any,
        inputs: Any,
    ) -> None:
        self._metadata, self._task_datastore = metadata, task_datastore
        self._task = (str(run_id), step_name, str(task_id))
        if not os.environ.get(WORKLOAD):
            return
        from metaflow.metadata_provider import MetaDatum

        tags = [f"attempt_id:{retry_count}"]
        facts = {field: os.environ[variable] for field, variable in METADATA.items() if os.environ.get(variable)}
        entries = [MetaDatum(field=k, value=v, type=k, tags=tags) for k, v in facts.items()]
        metadata.register_metadata(run_id, step_name, task_id, entries)

    def task_finished(
        self, step_name: str, flow: Any, graph: Any, is_task_ok: bool, retry_count: int, max_user_code_retries: int
    ) -> None:
        if not os.environ.get(WORKLOAD):
            return
        # Python would look for cycles in all that it has loaded once more before it ends, for a tenth of a second.
        atexit.register(gc.freeze)
        remote = os.environ.get(METADATA["sandbox-backend"]) in backends.REMOTE
        if remote and hasattr(self, "_metadata") and self._metadata.TYPE == "local":
            from metaflow_extensions.sandbox.plugins.local_metadata import to_datastore

            to_datastore(flow.name, *self._task, self._task_datastore)

    @classmethod
    def _save_package_once(cls, flow_datastore: Any, package: Any) -> None:
        base = SandboxDecorator
        if base.package_url is not None:
            return
        if _setting("FEAT_ALWAYS_UPLOAD_CODE_PACKAGE"):
            base.package_url, base.package_sha = package.package_url(), package.package_sha()
        else:
            base.package_url, base.package_sha = flow_datastore.save_data([package.blob], len_hint=1)[0]
        base.package_metadata = package.package_metadata


class DaytonaDecorator(SandboxDecorator):
    """Runs this step in a Daytona sandbox: `@sandbox(backend="daytona")`."""

    name = "daytona"
    defaults: ClassVar[dict[str, Any]] = {**SandboxDecorator.defaults, "backend": "daytona"}


class E2BDecorator(SandboxDecorator):
    """Runs this step in an E2B sandbox: `@sandbox(backend="e2b")`."""

    name = "e2b"
    defaults: ClassVar[dict[str, Any]] = {**SandboxDecorator.defaults, "backend": "e2b"}


class PinnedEntrypoint(list[str]):
    """The launcher's own python, whatever a later decorator wants: @conda and @pypi know their remote backends by
    name, and would put the step's interpreter, which has no SDK, under the trampoline."""

    def __setitem__(self, key: Any, value: Any) -> None:
        if key != 0:
            super().__setitem__(key, value)


def parse_network(value: object) -> Network:
    if value is None or str(value).lower() in ("true", "1", "on", "yes"):
        return Network()
    if str(value).lower() in ("false", "0", "off", "no"):
        return Network(allowed=False)
    items = value if isinstance(value, (list, tuple)) else str(value).split(",")
    return Network(only=tuple(str(item).strip() for item in items if str(item).strip()))


def _require_remote_datastore(decorator: str, backend: str, datastore: str) -> None:
    if datastore != "local":
        return
    raise Unusable(
        f"@{decorator} with the backend {backend} needs a remote datastore: its sandbox cannot see this machine.",
        fix=[
            "Use S3 for this run: METAFLOW_DATASTORE_SYSROOT_S3=s3://BUCKET/metaflow python flow.py --datastore=s3 run",
            "Or stay on this machine: python flow.py run --with sandbox:backend=local",
        ],
    )


def _merged_resources(decorators: Iterable[Any], decorator: SandboxDecorator) -> dict[str, str]:
    from metaflow.plugins.aws.aws_utils import compute_resource_attributes

    keys = ("cpu", "memory", "gpu", "disk")
    merged = compute_resource_attributes(decorators, decorator, dict.fromkeys(keys))
    return {k: v for k, v in merged.items() if k in keys}


def _time_limit(decorators: Iterable[Any], own: int | None) -> int:
    """Seconds until the step is ended from outside; @timeout, which ends it from inside, comes first."""
    from metaflow.plugins.timeout_decorator import TimeoutDecorator, get_run_time_limit_for_task

    limit = int(get_run_time_limit_for_task(decorators))
    if any(isinstance(deco, TimeoutDecorator) for deco in decorators):
        limit += _TIMEOUT_GRACE
    return limit if own is None else min(limit, own)


def _number(attributes: Mapping[str, Any], key: str, kind: type) -> Any:
    value = attributes[key]
    if value is None or value == "":
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    may_be_zero = key in ("gpu", "disk")
    if not (number > 0 or (number == 0 and may_be_zero)) or number == float("inf"):
        raise Unusable(
            f"{key}={value!r} is not a number that a sandbox can have.", fix=[f"Say it as a number: {key}=2"]
        )
    return kind(number) if kind is float or number == int(number) else int(number) + 1


def setting_number(name: str, *, least: int) -> int:
    number = int(_setting(name))
    if number < least:
        raise Unusable(
            f"METAFLOW_{name}={number} is too small; it must be {least} or more.",
            fix=[f"Take the default: unset METAFLOW_{name}"],
        )
    return number


def _setting(name: str) -> Any:
    from metaflow import metaflow_config

    return getattr(metaflow_config, name, None)


def _command() -> str:
    """The command that this process runs: `run`, `step`, `sandbox`, `argo-workflows` …"""
    from metaflow._vendor import click

    context = click.get_current_context(silent=True)
    while context is not None:
        saved = getattr(context, "saved_args", None)
        if saved:
            return str(saved[0])
        context = context.parent
    return ""
