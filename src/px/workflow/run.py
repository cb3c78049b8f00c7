"""Running a target, as ``px run`` and ``px test`` do: on this machine, or in the project's sandbox.

What only another engine or a failed target needs is imported where it is needed: a run should start soon.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NoReturn

from px import console
from px.engines import choose
from px.engines.network.modes import Wanted, settle
from px.engines.options import check_volumes, extra_ca
from px.errors import PxError
from px.sandbox.pytests import kept_apart
from px.warm import start
from px.warm.places import arrange
from px.warm.record import here, home_root
from px.warm.spec import APP, ENV, ImageSource, Mount
from px.warm.streams import Tail
from px.warm.target import InSandbox, interpreter_of, resolve
from px.workflow.door import ensure_sandbox

if TYPE_CHECKING:
    from collections.abc import Callable

    from px.engines.gpu.asked import Asked
    from px.engines.options import RunOptions
    from px.project.context import Context
    from px.store.objects import Store
    from px.warm.record import BuiltHost, BuiltSandbox
    from px.warm.spec import RunSpec

_KILLED = 128 + 9
_ENGINE_FAILED = 125


Target = tuple[str, list[str]]
"""What to run, and its arguments."""


def become(target: str, arguments: list[str], built: BuiltHost) -> NoReturn:
    """Replace px by the target; what cannot be run is an error."""
    problem = start.become(target, arguments, built)
    if problem is None:
        look = f"ls {built.directory}/bin"
        raise _missing_file(target, look) or PxError("PX020", target=target, look=look)
    program = interpreter_of(os.path.join(os.getcwd(), target))
    if program is not None and not os.path.exists(program):
        problem = f"its first line names {program}, which is not there"
    raise PxError("PX021", target=target, reason=problem)


def run_in_sandbox(
    context: Context, command: str, options: RunOptions, target: Callable[[BuiltSandbox], Target]
) -> int:
    """Build the sandbox as far as the command may, then run; try again with ``--auto-add``."""
    from px.workflow.autoadd import wanted

    more: frozenset[str] = frozenset()
    while True:
        lacking = None
        try:
            built = ensure_sandbox(context, command, more).built
            code, lacking = _run_once(context, built, target(built), options, tests=command == "test")
        except PxError as e:
            if not _may_add(context, options, e, more):
                raise
            lacking, code = e, e.exit_code
        if lacking is None:
            return code
        if not _may_add(context, options, lacking, more):
            show(lacking)
            return code
        more |= wanted(lacking)
        console.info(f"Adding {', '.join(sorted(more))} for this run (px sandbox add keeps it) …")


def _run_once(
    context: Context, built: BuiltSandbox, target: Target, options: RunOptions, *, tests: bool
) -> tuple[int, PxError | None]:
    """The target's exit code, and the capability that it lacked if its output shows one."""
    place = InSandbox(built)
    command = resolve(*target, place)
    program = place.lacks_interpreter(target[0]) if command and not options.volumes else None
    if program is not None:
        raise PxError("PX021", target=target[0], reason=f"its first line names {program}, which the sandbox has not")
    engine = choose(options.engine, context.store.home)
    asked = options.gpu if options.gpu is not None else _gpus_of_manifest(context)
    if command is None:
        command = _of_the_driver(target, asked, engine.name)
    if command is None:
        raise missing_program(target[0], built) or unknown_program(target[0])
    spec = _spec(context, built, command, options)
    spec = kept_apart(spec, built) if tests else spec
    if asked:
        spec = _with_gpus(spec, built, asked, engine.name)
    if engine.name != "bubblewrap":
        from px.engines.containers import network_options

        network_options(spec, engine.name)  # refused before an image is packed
        spec = spec.replace(image=_image_source(context.store, built))
    tail = Tail()
    code = engine.run(spec, stdout=tail if tests else None, stderr=tail)  # pytest reports on standard output
    if code != 0:
        explain_repository(tail.text)
        explain_gpus(tail.text, spec, code)
    if code == _KILLED and options.memory:
        console.warn(f"the target was killed, as happens when it needs more than --memory {options.memory}")
    return code, missing_capability(tail.text, built) if code != 0 else None


def _spec(context: Context, built: BuiltSandbox, command: list[str], options: RunOptions) -> RunSpec:
    network, reach = settle(options.network, _network_table(context))
    read_only = built.read_only if options.read_only is None else options.read_only
    tree, writes = Mount(built.root, APP, read_only), built.git_write or options.git_write
    check_volumes(options.volumes, built.root, home_root())
    mounts, hidden = arrange(tree, (*start.siblings(built), *options.volumes), home_root(), git_write=writes)
    spec = start.project_spec(built, command, options.env, use_cache=options.cache)
    return spec.replace(
        mounts=(*(mount for mount in spec.mounts if mount.target == start.CACHE), *mounts),
        hidden=hidden,
        network=network,
        reach=reach,
        limits=options.limits,
        extra_ca=extra_ca(os.environ) if "PX_EXTRA_CA" in os.environ else None,
    )


def _network_table(context: Context) -> Wanted:
    """``[tool.px.sandbox.network]``; the rest of the sandbox's manifest counts when it is built."""
    manifest = context.project.manifest
    if not manifest.sandbox_network:
        return Wanted()
    from px.sandbox.manifest import read_manifest

    return read_manifest(manifest.path, manifest.document).network


def _with_gpus(spec: RunSpec, built: BuiltSandbox, asked: Asked, engine: str) -> RunSpec:
    if built.base.startswith("alpine"):
        raise PxError("PX928", base=built.base)
    from px.engines.gpu.give import add_gpus, add_names  # most runs have no use for it

    return add_gpus(spec, asked, os.environ) if engine == "bubblewrap" else add_names(spec, asked, os.environ)


def _of_the_driver(target: Target, asked: Asked | None, engine: str) -> list[str] | None:
    """The command for a program such as nvidia-smi, which is in no image: it comes with the GPUs."""
    from px.engines.gpu.driver import table
    from px.engines.gpu.give import driver_program

    if target[0] not in table()["programs"]:
        return None
    if not asked:
        why = ["It comes with the driver of a GPU, and a sandbox has no GPU unless it is asked for."]
        raise PxError("PX020", target=target[0], look="", why=why, fix=["Ask for one: --gpu"], whole_fix=True)
    program = driver_program(target[0], engine)
    return [program, *target[1]] if program else None


def _gpus_of_manifest(context: Context) -> Asked | None:
    manifest = context.project.manifest
    if not manifest.sandbox_gpu:
        return None
    from px.sandbox.manifest import read_manifest

    return read_manifest(manifest.path, manifest.document).gpu


def _image_source(store: Store, built: BuiltSandbox) -> ImageSource:
    """The sandbox as an image, for engines that cannot run unpacked layers; packed once."""
    from px.sandbox.encode import encode, write
    from px.sandbox.image import read_image

    image = read_image(store, built.sbx_id)
    if image is None:
        raise PxError("PX801", kind="image", oid=built.sbx_id)
    packed = encode(store, image, built.project_layer)
    path = store.home.cache("archives") / f"{packed.config.digest.removeprefix('sha256:')}.tar"
    return ImageSource((packed.config.digest, packed.digest), lambda: write(store, packed, path))


# --- what was missing ------------------------------------------------------------------------------------------


def show(error: PxError) -> None:
    sys.stderr.write("\n" + "\n".join(error.lines()) + "\n")


def explain_failure(text: str, built: BuiltSandbox) -> None:
    """Say which capability would have helped, if the output of a failed target shows it."""
    error = missing_capability(text, built)
    if error is not None:
        show(error)
    explain_repository(text)
    explain_gpus(text)


def explain_repository(text: str) -> None:
    """Say why git could not write, if that is what a target complained about."""
    if any(f"{APP}/.git" in line and "Read-only file system" in line for line in text.splitlines()):
        console.warn("the repository is read-only in the sandbox; to let the target write to it: --git-write")


def explain_gpus(text: str, spec: RunSpec | None = None, code: int = 0) -> None:
    """Say how to get a GPU, if that is what a target looked for, or what its engine lacks."""
    from px.engines.gpu.driver import table

    if spec is not None and spec.gpus and code == _ENGINE_FAILED:
        names = ", ".join(spec.gpus)
        console.warn(f"if the engine found no GPU ({names}): it finds them with NVIDIA's container toolkit")
    elif (spec is None or not (spec.devices or spec.gpus)) and any(said in text for said in table()["messages"]):
        console.warn("a sandbox has no GPU unless it is asked for; to give it one: --gpu")


def missing_capability(text: str, built: BuiltSandbox) -> PxError | None:
    """The error for what a failed target said was missing, or None: a capability, or a file behind a link."""
    from px.sandbox.needs import patterns
    from px.sandbox.needs.links import leads_out

    found = [s for s in patterns.match(text, built.base) if s.capability not in built.capabilities]
    if found:
        return patterns.missing_error(found, [s.line for s in found])
    return patterns.missing_browser(text) or leads_out(text, built)


def missing_program(name: str, built: BuiltSandbox) -> PxError | None:
    """The PX902 for a target that is a program of a capability which the sandbox does not have, or None."""
    from px.sandbox.needs import patterns

    capability = patterns.capability_of("program", name, built.base)
    if capability is None or capability in built.capabilities:
        return None
    found = patterns.Suggestion(capability, name, "")
    return patterns.missing_error([found], [f"{name} is a program of the capability {capability}."])


def unknown_program(name: str) -> PxError:
    """The PX020 for a target that nothing in the sandbox is, and that no capability would bring."""
    look = f"px run --sandbox ls {ENV}/bin"
    if missing := _missing_file(name, look, "The sandbox has the project's files, and those that --volume brings."):
        return missing
    why = ["No capability of px brings a program of that name."]
    fix = [
        f"See what there is: px run --sandbox ls {ENV}/bin /usr/bin",
        "If a Python package brings it: px add PACKAGE",
        f"If it needs no libraries, mount it: --volume /path/to/{name}:/usr/local/bin/{name}:ro",
        "Else put it into an image on top of the project's: px pack image, then a Dockerfile that is FROM it",
    ]
    return PxError("PX020", target=name, look=look, why=why, fix=fix, whole_fix=True)


def _missing_file(target: str, look: str, *fix: str) -> PxError | None:
    """Say less about what can only be a file: no package brings it."""
    if os.sep not in target and not target.endswith(".py"):
        return None
    fix = (f"Check the path: it counts from {here()}", *fix)
    return PxError("PX020", target=target, look=look, fix=fix, whole_fix=True)


def _may_add(context: Context, options: RunOptions, error: PxError, more: frozenset[str]) -> bool:
    from px.workflow.autoadd import may_add

    return options.auto_add and may_add(context, error, more)
