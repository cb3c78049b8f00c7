"""``@sandbox``, ``@daytona`` and ``@e2b``: a compute backend for Metaflow steps.

The hooks are those of ``@batch``: check early, upload the code package once, replace the command of a task.  For a
remote backend the new command is ``sandbox step``, the trampoline.  The local backend puts a sandbox around the
command as it is, so that Metaflow does not start a second time.
"""

from __future__ import annotations

import atexit
import gc
import os
import platform
import sys
import time
from typing import TYPE_CHECKING, Any, ClassVar

from metaflow.decorators import StepDecorator

from metaflow_extensions.sandbox.plugins import backends, options, settings
from metaflow_extensions.sandbox.plugins.backend import LocalStep
from metaflow_extensions.sandbox.plugins.errors import BackendError, Unusable
from metaflow_extensions.sandbox.plugins.report import facts
from metaflow_extensions.sandbox.plugins.settings import setting, setting_number
from metaflow_extensions.sandbox.plugins.variables import credential_files, forwarded

if TYPE_CHECKING:
    from pathlib import Path

    from metaflow_extensions.sandbox.plugins.project_image import ProjectImage
    from metaflow_extensions.sandbox.plugins.remote.fork_server import ForkServer

DEPLOYERS = ("argo-workflows", "step-functions", "airflow")
# The commands that start tasks. The others (show, logs, dump …) work without a key, an SDK or a datastore.
RUNS = ("run", "resume")
# Decorators of Metaflow and of its extensions that run a step elsewhere. A step runs in one place.
ELSEWHERE = ("batch", "kubernetes", "slurm", "snowpark", "nvidia", "nvct", "skypilot_step")
HIDDEN = "***"


class SandboxDecorator(StepDecorator):
    """
    Specifies that this step runs in a sandbox: on this machine, or at a provider.

    Parameters
    ----------
    backend : str, default METAFLOW_SANDBOX_BACKEND, else "local"
        "local", "daytona", "e2b", or one that another package brings.
    cpu : float, optional
        Number of CPUs. If `@resources` is also present, the maximum of the two is used; `@resources` alone is no
        limit on this machine.
    memory : int, optional
        Memory in MB; as cpu.
    gpu : int, optional
        Number of GPUs, where the backend has them. On this machine `@resources(gpu=1)` gives one too, if there is one.
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
        False cuts the network off; a string lists the only hosts that may be reached, by commas.
    disabled : bool, default False
        True keeps the step out of every sandbox, whatever `--with` says.
    """

    name = "sandbox"
    defaults: ClassVar[dict[str, Any]] = dict.fromkeys(
        ("backend", *options.RESOURCES, "image", "timeout", "env", "network", "executable", "disabled")
    )
    # @conda and @pypi read these two: whether they work with this decorator, and which packages they resolve.
    supports_conda_environment = True
    target_platform = "linux-aarch64" if platform.machine().lower() in ("aarch64", "arm64") else "linux-64"

    # These belong to the class, because every step has a decorator of its own. The code package is uploaded once for
    # all steps of a run, and one fork server serves them all.
    package_metadata: ClassVar[str | None] = None
    package_sha: ClassVar[str | None] = None
    package_url: ClassVar[str | None] = None
    fork_server: ClassVar[ForkServer | None] = None
    announced: ClassVar[str] = ""
    """The image that the user was told about."""

    project: ProjectImage | None = None
    """The image of the px project around the flow, if the step stands on it at a provider."""
    active = False
    """Whether this decorator runs the step: it is not disabled, and no other decorator goes before it."""

    def step_init(
        self,
        flow: Any,
        graph: Any,
        step_name: str,
        decorators: list[Any],
        environment: Any,
        flow_datastore: Any,
        logger: Any,
    ) -> None:
        self._step_name = step_name
        self._flow_datastore = flow_datastore
        self._decorators = decorators
        self._environment = environment
        self._retried = False
        self.attributes["backend"] = self.attributes["backend"] or setting("SANDBOX_BACKEND")
        self.attributes["image"] = self.attributes["image"] or setting("SANDBOX_IMAGE")
        try:
            self.user_env = self._take_env()
            self.active = self._goes_first(decorators)
            if not self.active:
                return
            self._take_resources(logger)
            self.time_limit = options.time_limit(decorators, options.whole_number(self.attributes, "timeout"))
            self._refuse_deployment()
            if _words()[:1] and _words()[0] in RUNS:
                self._check(graph[step_name])
        except BackendError as e:
            raise settings.metaflow_error(e) from None

    def _goes_first(self, decorators: list[Any]) -> bool:
        """Whether this decorator runs the step: the one in the code does, else the first of ``--with``."""
        rivals = [d for d in decorators if isinstance(d, SandboxDecorator) or d.name in ELSEWHERE]
        own = [d for d in rivals if d.statically_defined]
        able = [d for d in own if not _is_disabled(d)]
        if len(able) > 1:
            names = " and ".join(f"@{d.name}" for d in able)
            raise Unusable(
                f"The step {self._step_name} has {names}, and can run in one place only.",
                fix=[f"Keep one of them: remove @{d.name}" for d in able],
            )
        first = (able or own or rivals)[0]
        if first is not self or _is_disabled(self):
            return False
        # Other backends take every task that they are attached to, so those of --with are taken off the step.
        decorators[:] = [d for d in decorators if d.name not in ELSEWHERE]
        return True

    def _take_resources(self, logger: Any) -> None:
        """Merge ``@resources``.  On this machine it is a wish, as in a plain run: it bounds nothing by itself."""
        merged = options.merged_resources(self._decorators, self)
        if self.is_local:
            wished, own = merged, {k: v for k, v in self.attributes.items() if v not in (None, "")}
            merged = {k: v for k, v in merged.items() if k in own}
            if "gpu" not in own and float(wished.get("gpu") or 0) and (_words()[:1] or [""])[0] in RUNS:
                merged |= self._wish_for_gpus(wished["gpu"], logger)
        self.attributes.update(merged)

    def _wish_for_gpus(self, wished: str, logger: Any) -> dict[str, str]:
        """The GPUs of ``@resources``, where this machine has them; a plain run does not fail without, either."""
        from metaflow_extensions.sandbox.plugins.local.gpus import gpus_of

        try:
            gpus_of(options.whole_number({"gpu": wished}, "gpu") or 0)
        except Unusable as e:
            logger(f"The step {self._step_name} wishes for gpu={wished}, and gets none. {e.what}")
            return {}
        return {"gpu": wished}

    def _refuse_deployment(self) -> None:
        words = _words()
        if words[:1] and words[0] in DEPLOYERS and "create" in words and "--help" not in words:
            # They would start plain `step` commands and say nothing about the sandbox that is missing.
            option = f"--with {self.name}"
            out, run = f"Leave out {option}", f"python flow.py run {option}"
            if self.statically_defined:
                out, run = f"Remove @{self.name} from the step and say `{option}` when you run it", "python flow.py run"
            raise Unusable(
                f"The step {self._step_name} has @{self.name}, but {words[0]} would run it without a sandbox: only "
                "`run` starts sandboxes.",
                fix=[
                    out,
                    "and deploy the flow of a px project with --environment=px: its steps have the same packages there",
                    f"Or run it here: {run}",
                ],
                read="docs/how-to/run-flows-elsewhere.md",
            )

    def _take_env(self) -> dict[str, str]:
        """The values of ``env=``.  Metaflow stores attributes with every run, so only the names stay there."""
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
        # Attributes of --with travel to the task on its command line anyway, and the task needs them there.
        if env and self.statically_defined:
            self.attributes["env"] = dict.fromkeys(env, HIDDEN)
        return env

    def _check(self, node: Any) -> None:
        """Refuse, before anything runs, what cannot work."""
        name, step_name, datastore = str(self.attributes["backend"]), self._step_name, self._flow_datastore.TYPE
        backend = backends.get_backend(name)
        if self.defaults["backend"] not in (None, name):
            raise Unusable(
                f"@{self.name} runs steps at {self.name}, not with the backend {name}.",
                fix=[f"Say it as --with sandbox:backend={name}, or in code @sandbox(backend='{name}')"],
            )
        if backend.remote:
            _require_remote_datastore(self.name, name, datastore)
            if getattr(node, "parallel_step", False):
                raise Unusable(
                    f"The step {step_name} is @parallel: its nodes must reach each other, and {name} sandboxes cannot.",
                    fix=[
                        "Run it on this machine: python flow.py run --with sandbox:backend=local",
                        "Or use foreach instead of num_parallel",
                    ],
                )
            if self._on_project(backend):
                from metaflow_extensions.sandbox.plugins.project_image import check_registry

                check_registry(_flow_directory(), name)
        # These are read again when a task starts. Here they only refuse bad values in time.
        forwarded(os.environ, setting("SANDBOX_FORWARD") or "", never=getattr(backend, "keys", ()))
        credential_files(os.environ, datastore, self.user_env)
        setting_number("SANDBOX_INFRA_RETRIES", least=0)
        config = options.sandbox_config(self.attributes, {})
        backend.check(config)
        if not config.network.allowed and datastore != "local":
            raise Unusable(
                f"network=False would cut the step {step_name} off from its {datastore} datastore.",
                fix=[
                    "Use the local datastore: python flow.py --datastore=local run",
                    "Or remove network=False from the step",
                ],
            )
        if backend.remote and self._on_project(backend):
            from metaflow_extensions.sandbox.plugins.project_image import check_image

            # It asks the registry, so it comes last. Later there is a run already, which would be left without a task.
            check_image(_flow_directory(), datastore, _platform(), code=False, apt=_wants_apt(backend))

    @property
    def is_local(self) -> bool:
        return bool(self.attributes["backend"] == backends.LOCAL)

    @property
    def _starts_tasks(self) -> bool:
        """Whether this process starts the tasks of the step.  In a task, Metaflow calls the same hooks again."""
        return self.active and not os.environ.get(settings.WORKLOAD)

    def add_to_package(self) -> list[tuple[str, str]]:
        if self.is_local or not self._starts_tasks:
            return []
        from metaflow_extensions.sandbox.plugins.remote.bytecode import compiled_modules

        return list(compiled_modules())

    def runtime_init(self, flow: Any, graph: Any, package: Any, run_id: str) -> None:
        self._flow, self._package, self._run_id = flow, package, run_id
        if not self._starts_tasks:
            return
        try:
            if self.is_local:
                local = backends.get_local_backend()
                local.sandboxes({})  # removes the records of killed ones
                # Before the steps that run without a sandbox, which may take hours.
                local.prepare(self._local_step(), sys.argv[0])
                return
            backend = backends.get_backend(str(self.attributes["backend"]))
            if self._on_project(backend):
                self._take_project(backend)
        except BackendError as e:
            raise settings.metaflow_error(e) from None
        self._start_fork_server()

    def _on_project(self, backend: Any) -> bool:
        """Whether the step stands on the px project around the flow: it names no image, and has no own packages."""
        if not getattr(backend, "takes_project", False) or self.attributes["image"] or self._has_own_packages():
            return False
        from metaflow_extensions.sandbox.plugins.project_image import has_project

        return has_project(_flow_directory())

    def _take_project(self, backend: Any) -> None:
        """Pack and push the project's image.  Nothing runs yet, so whatever is wrong stops nothing."""
        from metaflow_extensions.sandbox.plugins.project_image import project_image

        # Metaflow brings the flow, so a change of it needs no new image and template.
        self.project = image = project_image(
            _flow_directory(), self._flow_datastore.TYPE, _platform(), code=False, apt=_wants_apt(backend)
        )
        if SandboxDecorator.announced != image.reference:  # not for every step
            SandboxDecorator.announced = image.reference
            sys.stderr.write(f"px: {image}\n")

    def _start_fork_server(self) -> None:
        from metaflow_extensions.sandbox.plugins.remote.fork_server import ForkServer

        base = SandboxDecorator
        if base.fork_server is None:
            base.fork_server = ForkServer.start(str(self.attributes["backend"]), self._flow_datastore.TYPE)

    def runtime_task_created(
        self, task_datastore: Any, task_id: str, split_index: Any, input_paths: Any, is_cloned: bool, ubf_context: Any
    ) -> None:
        if self.active and not is_cloned and not self.is_local:
            self._save_package_once()

    def runtime_step_cli(self, cli_args: Any, retry_count: int, max_user_code_retries: int, ubf_context: Any) -> None:
        self._retried = self._retried or retry_count > 0
        # After the last attempt of the user's code comes the fallback of @catch, which runs without a sandbox.
        if not self._starts_tasks or retry_count > max_user_code_retries:
            return
        try:
            if self.is_local:
                backends.get_local_backend().enter(self._local_step(), cli_args)
            else:
                self._delegate(cli_args)
        except BackendError as e:
            raise settings.metaflow_error(e) from None

    def _has_own_packages(self) -> bool:
        """Whether ``@pypi`` or ``@conda`` gives the step an environment of its own."""
        packagers = [d for d in self._decorators if d.name in ("pypi", "conda")]
        enabled = any(str(d.attributes.get("disabled")).lower() != "true" for d in packagers)
        return enabled and self._environment.TYPE in ("pypi", "conda", "fast-bakery")

    def _local_step(self) -> LocalStep:
        return LocalStep(
            config=options.sandbox_config(self.attributes, {}),
            time_limit=self.time_limit,
            env=self.user_env,
            executable=self.attributes["executable"],
            has_own_packages=self._has_own_packages(),
            uses_secrets=any(d.name == "secrets" for d in self._decorators),
        )

    def _delegate(self, cli_args: Any) -> None:
        """Let Metaflow start ``python flow.py sandbox step …`` for this task, or a stand-in for it."""
        cli_args.commands = ["sandbox", "step"]
        cli_args.command_args += [self.package_metadata, self.package_sha, self.package_url]
        # Every user of this machine can read a command line, so the values of env= are not on it.
        given = {k: v for k, v in self.attributes.items() if k not in ("env", "network") and v is not None}
        cli_args.command_options.update(given)
        if self.project is not None:
            cli_args.command_options.update({"image": self.project.reference, "sbx-id": self.project.sbx_id})
        cli_args.command_options["decorator"] = self.name
        cli_args.command_options["run-time-limit"] = self.time_limit
        if self.attributes["network"] is not None:
            cli_args.command_options["network"] = str(self.attributes["network"])
        trampoline = [sys.executable, *cli_args.entrypoint[1:]]
        server = SandboxDecorator.fork_server
        cli_args.entrypoint = PinnedEntrypoint(server.command(trampoline) if server else trampoline)

    def runtime_finished(self, exception: Any) -> None:
        """End the sandboxes that killed tasks have left.  Metaflow calls this after the last task has ended."""
        base = SandboxDecorator
        if base.fork_server:
            base.fork_server.stop()
            base.fork_server = None
        # Where every task ended by itself, nothing can be left. The provider need not be asked then.
        if not self._starts_tasks or not (exception or self._retried) or not hasattr(self, "_run_id"):
            return
        from metaflow_extensions.sandbox.plugins.sandbox_listing import reap

        labels = {"flow": self._flow.name, "run": str(self._run_id), "step": self._step_name}
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
        if not self.active or not os.environ.get(settings.WORKLOAD):
            return
        from metaflow import current

        known = facts.at_start(os.environ, self.attributes, self.time_limit)
        facts.register(metadata, self._task, known, retry_count)
        current._update_env({facts.CURRENT: known})
        self._began = time.monotonic()

    def task_post_step(
        self, step_name: str, flow: Any, graph: Any, retry_count: int, max_user_code_retries: int
    ) -> None:
        self._note_end(retry_count)

    def task_exception(
        self, exception: Any, step_name: str, flow: Any, graph: Any, retry_count: int, max_user_code_retries: int
    ) -> None:
        self._note_end(retry_count)

    def _note_end(self, attempt: int) -> None:
        """Before cards are made, which is when the task counts as finished."""
        if hasattr(self, "_began"):
            facts.register(self._metadata, self._task, facts.at_end(self._began), attempt)

    def task_finished(
        self, step_name: str, flow: Any, graph: Any, is_task_ok: bool, retry_count: int, max_user_code_retries: int
    ) -> None:
        if not self.active or not os.environ.get(settings.WORKLOAD):
            return
        # Before it ends, Python collects garbage once more, which takes a tenth of a second and helps nobody.
        atexit.register(gc.freeze)
        remote = os.environ.get(settings.BACKEND) != backends.LOCAL
        # Without _metadata, the task failed before its first hook, and has recorded nothing.
        if remote and hasattr(self, "_metadata") and self._metadata.TYPE == "local":
            from metaflow_extensions.sandbox.plugins.remote.metadata import to_datastore

            to_datastore(flow.name, *self._task, self._task_datastore)

    def _save_package_once(self) -> None:
        base, package = SandboxDecorator, self._package
        if base.package_url is not None:
            return
        if setting("FEAT_ALWAYS_UPLOAD_CODE_PACKAGE"):
            base.package_url, base.package_sha = package.package_url(), package.package_sha()
        else:
            base.package_url, base.package_sha = self._flow_datastore.save_data([package.blob], len_hint=1)[0]
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
    """An entrypoint whose python later decorators cannot change.

    ``@conda`` and ``@pypi`` put the interpreter of the step there, unless they know the backend by name.  The
    trampoline must run with this one, which has the SDK.
    """

    def __setitem__(self, key: Any, value: Any) -> None:
        if key != 0:
            super().__setitem__(key, value)


def _require_remote_datastore(decorator: str, backend: str, datastore: str) -> None:
    if datastore != "local":
        return
    raise Unusable(
        f"@{decorator} with the backend {backend} needs a remote datastore: its sandbox cannot see this machine.",
        fix=[
            "Use S3: METAFLOW_DATASTORE_SYSROOT_S3=s3://BUCKET/metaflow python flow.py --datastore=s3 run …",
            "Or stay on this machine: python flow.py run --with sandbox:backend=local",
        ],
    )


def _platform() -> str:
    """Of the project's image at providers, whose machines are amd64."""
    return str(setting("SANDBOX_PLATFORM") or "linux/amd64")


def _wants_apt(backend: Any) -> bool:
    return bool(getattr(backend, "wants_apt", False))


def _flow_directory() -> Path:
    from metaflow_extensions.sandbox.plugins.project_image import flow_directory

    return flow_directory(sys.argv[0])


def _is_disabled(decorator: Any) -> bool:
    # From the command line, everything is text.
    return str(decorator.attributes.get("disabled")).lower() == "true"


def _words() -> list[str]:
    """The command that this process runs, and its arguments: `run --with …`, `argo-workflows create` …"""
    from metaflow._vendor import click

    # Metaflow initialises decorators before click has parsed the command, but it has kept the words that follow.
    context = click.get_current_context(silent=True)
    while context is not None:
        saved = getattr(context, "saved_args", None)
        if saved:
            return [str(word) for word in saved]
        context = context.parent
    return []
