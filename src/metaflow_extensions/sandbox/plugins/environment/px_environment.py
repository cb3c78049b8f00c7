"""The environment itself: it packs and pushes the project's image, and gives it to the steps that run elsewhere.

Metaflow makes the code package right before a run or a deployment, after every decorator is in place, and asks its
environment to get ready then.  Commands that only look (``show``, ``check``, ``dump``) make no code package.
"""

from __future__ import annotations

import shlex
import sys
from typing import Any

from metaflow.metaflow_environment import MetaflowEnvironment
from metaflow.user_configs.config_parameters import resolve_delayed_evaluator, unpack_delayed_evaluator

from metaflow_extensions.sandbox.plugins import settings
from metaflow_extensions.sandbox.plugins.environment.px_decorator import PxDecorator
from metaflow_extensions.sandbox.plugins.errors import BackendError, Unusable
from metaflow_extensions.sandbox.plugins.project_image import READ, ProjectImage, flow_directory, project_image
from metaflow_extensions.sandbox.plugins.report.facts import SBX_ID

# The decorators whose steps run in a container with the image that they name. Argo Workflows and Airflow give
# @kubernetes to every step, and Step Functions gives @batch.
ELSEWHERE = ("batch", "kubernetes")
# Metaflow lets these work in its own environments only.
PACKAGERS = ("pypi", "conda", "pypi_base", "conda_base")


class PxEnvironment(MetaflowEnvironment):
    """What Metaflow asks of an environment."""

    TYPE = "px"

    def __init__(self, flow: Any):
        super().__init__(flow)
        self._flow = flow
        self._image: ProjectImage | None = None

    def decospecs(self) -> tuple[str, ...]:
        return (PxDecorator.name,)

    def validate_environment(self, logger: Any, datastore_type: str) -> None:
        self._datastore = datastore_type
        # image=None is no image, says Metaflow. Later it fills in its default, and then nobody can tell any more.
        self._without = [d for d in self._elsewhere() if not _named_image(d)]
        try:
            self._refuse_own_packages()
        except BackendError as e:
            raise settings.metaflow_error(e) from None

    def _refuse_own_packages(self) -> None:
        """Metaflow would say only that its own environments are needed, and not what to do here."""
        own = [(f"The step {s.name}", d) for s in self._flow for d in s.decorators if d.name in PACKAGERS]
        whole = getattr(self._flow, "_flow_decorators", {})
        own += [("The flow", d) for name in PACKAGERS for d in whole.get(name, ())]
        if not own:
            return
        where, decorator = own[0]
        # Of a Config, they are not read yet.
        found = [decorator.attributes.get(kind) or {} for kind in ("libraries", "packages")]
        named = [row for one in found for row in resolve_delayed_evaluator(one, to_dict=True).items()]
        packages = [_requirement(str(name), str(version or "")) for name, version in named]
        raise Unusable(
            f"{where} has @{decorator.name}. With --environment=px all steps have the packages of the project's lock.",
            fix=[
                f"Lock its packages with the others: px add {' '.join(packages) or 'PACKAGE'}",
                f"and remove @{decorator.name}",
                "Or let Metaflow install them, and run the flow without px: --environment=pypi",
            ],
            read=READ,
        )

    def init_environment(self, echo: Any, only_steps: Any = None) -> None:
        """Give the project's image to every step that runs elsewhere and names no image of its own."""
        steps = [d for d in self._elsewhere() if not self._has_own_image(d)]
        if not steps or _only_looks():
            return
        try:
            self._image = project_image(flow_directory(sys.argv[0]), self._datastore)
        except BackendError as e:
            raise settings.metaflow_error(e) from None
        echo(f"px: {self._image}", err=True)
        for decorator in steps:
            decorator.attributes["image"] = self._image.reference

    def _elsewhere(self) -> list[Any]:
        return [d for s in self._flow for d in s.decorators if d.name in ELSEWHERE]

    def _has_own_image(self, decorator: Any) -> bool:
        """Whether the step names its image.  A default of Metaflow's configuration is nobody's choice for this flow."""
        if decorator in self._without:
            return False
        # Of what a mutator gives to a decorator, Metaflow does not note that somebody named it.
        named = "image" in decorator._user_defined_attributes and not decorator.inserted_by
        return named or decorator.attributes["image"] != _default_image(type(decorator))

    def add_to_package(self) -> list[tuple[str, str]]:
        """Metaflow in compiled form: a task would compile what it imports, and throw it away at its end."""
        if self._image is None:
            return []
        from metaflow_extensions.sandbox.plugins.remote.bytecode import compiled_modules

        return list(compiled_modules())

    @classmethod
    def get_client_info(cls, flow_name: str, metadata: dict[str, str]) -> dict[str, str]:
        """``Task.environment_info``"""
        return {"type": cls.TYPE, "sbx_id": metadata.get(SBX_ID, "")}


def _named_image(decorator: Any) -> Any:
    """What stands for image= in the code, also if it comes from a Config, alone or with more: ``**config_expr(…)``."""
    attributes, _ = unpack_delayed_evaluator(decorator.attributes)
    return resolve_delayed_evaluator(attributes["image"])


def _default_image(kind: Any) -> Any:
    """What Metaflow fills in for a decorator that names no image."""
    bare = kind()
    bare.external_init()
    return bare.attributes["image"]


def _requirement(name: str, version: str) -> str:
    """A package of ``@pypi`` as ``px add`` takes it, in a shell."""
    operator = "" if version[:1] in ("", "<", ">", "=", "!", "~") else "=="
    return shlex.quote(f"{name}{operator}{version}")


def _only_looks() -> bool:
    """``package list`` and ``package save`` make a code package that nobody runs; ``spin`` runs a step here."""
    from metaflow._vendor import click

    context = click.get_current_context(silent=True)
    names = []
    while context is not None:
        names.append(context.info_name)
        context = context.parent
    return not {"package", "spin"}.isdisjoint(names[:-1])
