"""``px pack image``: the project and its sandbox as one deployable OCI image."""

from __future__ import annotations

import re
import shlex
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from px import console
from px.errors import PxError
from px.process import tidy_end
from px.project import rules
from px.project.discovery import discover
from px.project.selection import Selection
from px.project.situation import inspect
from px.project.state import Target

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from px.cli.context import Context
    from px.oci.blobs import Blobs
    from px.oci.layout import Release
    from px.oci.push import Pushed
    from px.oci.reference import Reference
    from px.project.discovery import Project
    from px.project.situation import Situation
    from px.sandbox.pack import Packed, PackOptions

SUMMARY = "Make a deployable OCI image of the project and its sandbox"
_EPILOG = """\
The image has the base, the system libraries of the capabilities, the locked packages without the development
groups, and the files of the working tree that git does not ignore. The same commit gives the same digest on
every machine.

  px pack image --out app.tar                          docker load < app.tar
  px pack image --tag registry.example.org/app:1.0 --push
  px pack image --platform linux/amd64,linux/arm64 --out app/
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("--tag", action="append", default=[], metavar="NAME", help="the image's name; may be repeated")
    parser.add_argument("--out", metavar="PATH", help="write it: an archive (x.tar) or an OCI layout (dir/)")
    parser.add_argument("--push", action="store_true", help="push it to the registry that its name says")
    parser.add_argument("--load", action="store_true", help="hand it to docker or podman on this machine")
    parser.add_argument("--platform", default="", metavar="LIST", help="linux/amd64, linux/arm64 or both")
    parser.add_argument("--format", choices=("oci", "docker"), default="oci", help="media types (default: oci)")
    parser.add_argument("--compression", choices=("gzip", "zstd"), default="gzip", help="of layers (default: gzip)")
    parser.add_argument("--allow-dirty", action="store_true", help="pack uncommitted changes too")
    parser.add_argument("--insecure", action="store_true", help="allow a registry without TLS")
    image = parser.add_argument_group("what the image does")
    image.add_argument(
        "--entrypoint",
        metavar="COMMAND",
        help="what it runs (default: the only console script; '': nothing of its own)",
    )
    image.add_argument(
        "--cmd", metavar="ARGUMENTS", help="default arguments of the entrypoint, or a command if it has none"
    )
    image.add_argument(
        "--expose", action="append", default=[], metavar="PORT", help="a port it listens on: 8000, 53/udp"
    )
    image.add_argument("--label", action="append", default=[], metavar="NAME=VALUE", help="a label of your own")
    image.add_argument("--sbom", metavar="FILE", help="write the bill of materials (CycloneDX) to FILE")
    what = parser.add_argument_group("what is installed")
    what.add_argument("--group", action="append", default=[], metavar="NAME", help="include a dependency group")
    what.add_argument("--all-groups", action="store_true", help="include every dependency group")
    what.add_argument("--extra", action="append", default=[], metavar="NAME", help="include an extra of the project")
    what.add_argument("--all-extras", action="store_true", help="include every extra")


@dataclass(frozen=True)
class Result:
    """What was made, for the summary."""

    release: Release
    packed: tuple[Packed, ...]
    names: tuple[Reference, ...]


def main(args: argparse.Namespace, context: Context) -> int:
    from px.cli.workflow import exclusive
    from px.oci.blobs import Blobs

    check_places(args, offline=context.offline)
    options = image_options(args)
    project = discover(context.directory)
    situation = inspect(context.home, project, offline=context.offline)
    rules.permit("pack image", situation.flags(Target.SANDBOX), frozen_by=context.frozen_by, target=Target.SANDBOX)
    clean = check_clean(project, allow_dirty=args.allow_dirty, outputs=outputs(args))
    started = time.monotonic()
    with tidy_end(), exclusive(context, project.root):
        result = make(args, context, situation, replace(options, clean=clean))
        if not args.allow_dirty:  # a file that was saved meanwhile may be in the image
            check_clean(project, allow_dirty=False, outputs=outputs(args), warn=False)
        blobs = Blobs(context.home)
        pushed = deliver(args, context, blobs, result)
    if not context.json:
        report(args, result, pushed, time.monotonic() - started)
    context.emit(f"built {result.names[0]}", details(result, pushed))
    return 0


def check_places(args: argparse.Namespace, *, offline: bool = False) -> None:
    """Names that cannot be pushed to, or a place that cannot be written to, are said before anything is built."""
    from px.oci.layout import check_replaceable
    from px.oci.reference import parse

    names = [parse(text) for text in args.tag]
    if args.push and offline:
        example = "px pack image --offline --out app.tar"
        raise PxError("PX040", option="--push", value="--offline", problem="a push needs the network", example=example)
    for name in names:
        if name.digest:
            raise PxError("PX922", reference=str(name), problem="a digest follows from the content, it cannot be given")
    if args.push and (not names or any(name.is_local for name in names)):
        shown = next((str(name) for name in names if name.is_local), "px.local/…")
        raise PxError("PX922", reference=shown, problem="px.local is this machine's own name for it, not a registry")
    for option, value in (("--out", args.out), ("--sbom", args.sbom)):
        if value == "":
            raise PxError("PX040", option=option, value="''", problem="a path is missing", example=f"{option} FILE")
    if args.sbom and Path(args.sbom).is_dir():
        example = f"--sbom {args.sbom.rstrip('/')}/bill.json"
        raise PxError("PX040", option="--sbom", value=args.sbom, problem="it is a directory", example=example)
    if args.out and (args.out.endswith("/") or Path(args.out).is_dir()):
        check_replaceable(Path(args.out))


def image_options(args: argparse.Namespace) -> PackOptions:
    """What the flags say about the image itself."""
    from px.sandbox.pack import PackOptions

    return PackOptions(
        entrypoint=words("--entrypoint", args.entrypoint),
        cmd=words("--cmd", args.cmd) or (),
        ports=tuple(ports(args.expose)),
        labels=labels(args.label),
        format=args.format,
        compression=args.compression,
        outputs=outputs(args),
    )


def words(option: str, text: str | None) -> tuple[str, ...] | None:
    """A command as a shell would split it."""
    try:
        return None if text is None else tuple(shlex.split(text))
    except ValueError as e:
        example = f"{option} 'serve --name \"my app\"'"
        problem = f"it cannot be split into words ({str(e).lower()})"
        raise PxError("PX040", option=option, value=text, problem=problem, example=example) from e


def architectures(text: str) -> list[str]:
    """The architectures that ``--platform`` asks for, each once; this machine's own if it says nothing."""
    from px.sandbox.bases import host_architecture
    from px.sandbox.runtime import MACHINES

    # Docker's long name of what everybody calls arm64.
    known = {f"linux/{name}": name for name in MACHINES} | {"linux/arm64/v8": "arm64"}
    found = []
    for one in text.split(",") if text else ():
        if one.strip() not in known:
            example = "--platform " + ",".join(f"linux/{name}" for name in MACHINES)
            raise PxError("PX040", option="--platform", value=one, problem="px has no such platform", example=example)
        found.append(known[one.strip()])
    return list(dict.fromkeys(found)) or [host_architecture()]


def outputs(args: argparse.Namespace) -> tuple[Path, ...]:
    """What this command writes: it may lie in the working tree, and is not part of the app."""
    return tuple(Path(path) for path in (args.out, args.sbom) if path)


def check_clean(project: Project, *, allow_dirty: bool, outputs: Sequence[Path] = (), warn: bool = True) -> bool:
    """An image is made from a commit: PX920 unless the user says otherwise, and then a warning.

    Says whether git found nothing that is changed or untracked.
    """
    from px.oci.appfiles import dirty
    from px.sandbox.manifest import governing_manifest

    manifest, _ = governing_manifest(project.manifest.path)
    changes = dirty(project.root, exclude=sorted(manifest.exclude), outputs=outputs, hidden=warn)
    if changes is None:
        if warn:
            console.warn("this is not a git repository: the image cannot say which commit it was made from")
        return False
    if not changes:
        return True
    shown = ", ".join(str(c) for c in changes[:5]) + (" …" if len(changes) > 5 else "")
    if not allow_dirty:
        raise PxError("PX920", count=len(changes), changes=shown)
    console.warn(f"packing {len(changes)} uncommitted change(s): {shown}")
    return False


def make(args: argparse.Namespace, context: Context, situation: Situation, options: PackOptions) -> Result:
    from px.oci.blobs import Blobs
    from px.oci.layout import release
    from px.oci.reference import default_reference, parse
    from px.sandbox.pack import pack

    project = situation.project
    names = [parse(text) for text in args.tag]
    chosen = selection(args, situation.selection(Target.SANDBOX).python)
    packed = tuple(
        pack(context.store, situation, chosen, options, architecture=architecture, offline=context.offline)
        for architecture in architectures(args.platform)
    )
    commit = packed[0].commit
    if not names:
        names = [default_reference(project.name, project.here.version, commit.revision if commit else None)]
    return Result(release(Blobs(context.home), tuple(p.image for p in packed), tuple(names)), packed, tuple(names))


def selection(args: argparse.Namespace, python: str | None) -> Selection:
    """Production's part of the lock, with the Python version that the sandbox was synced with."""
    return Selection(
        groups=tuple(sorted(set(args.group))),
        extras=tuple(sorted(set(args.extra))),
        all_groups=args.all_groups,
        all_extras=args.all_extras,
        default_groups=False,
        # A path is one machine's; in the image it stands for no version.
        python=python if python and re.fullmatch(r"[0-9.]+", python) else None,
    )


def ports(texts: Sequence[str]) -> list[str]:
    for text in texts:
        number, _, protocol = text.partition("/")
        if (
            not re.fullmatch("[0-9]{1,5}", number)
            or not 0 < int(number) < 65536
            or protocol not in ("", "tcp", "udp", "sctp")
        ):
            problem = "it is not a port"
            raise PxError("PX040", option="--expose", value=text, problem=problem, example="--expose 8000")
    return sorted(set(texts))


def labels(texts: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, given, value = text.partition("=")
        if not name or not given or name.startswith("px."):
            problem = "px.* belongs to px" if name.startswith("px.") else "it is not NAME=VALUE"
            raise PxError("PX040", option="--label", value=text, problem=problem, example="--label team=web")
        found[name] = value
    return found


def deliver(args: argparse.Namespace, context: Context, blobs: Blobs, result: Result) -> tuple[Pushed, ...]:
    """Write, load and push as asked; what was built stays good whichever of these fails."""
    from px.sandbox.packed import remember

    remember(context.home, result.release)
    if args.sbom:
        write_bills(context, result, Path(args.sbom))
    if args.out:
        write_out(blobs, result.release, args.out)
    if args.load:
        load(result.release, blobs)
    return push(args, blobs, result) if args.push else ()


def write_bills(context: Context, result: Result, path: Path) -> None:
    """The bill of materials; one for each platform, with its architecture in the name, if there are several."""
    from px.oci.failures import building
    from px.oci.layout import open_output

    for name, packed in zip(bill_paths(result, path), result.packed, strict=True):
        with building(context.home, name.parent), open_output(name) as out:
            out.write(packed.bill)


def bill_paths(result: Result, path: Path) -> list[Path]:
    architectures = [packed.image.spec.platform.architecture for packed in result.packed]
    return (
        [path] if len(architectures) == 1 else [path.with_name(f"{path.stem}.{a}{path.suffix}") for a in architectures]
    )


def write_out(blobs: Blobs, release: Release, out: str) -> None:
    from px.oci.layout import write_archive, write_layout

    path = Path(out)
    if out.endswith("/") or path.is_dir():
        write_layout(blobs, release, path)
    else:
        write_archive(blobs, release, path)


def load(release: Release, blobs: Blobs) -> None:
    """``docker load`` or ``podman load``, whichever is there."""
    import shutil
    import subprocess

    from px.oci.layout import stream_archive

    client = next((name for name in ("docker", "podman") if shutil.which(name)), None)
    if client is None:
        fix = ["Install docker or podman, or write a file: px pack image --out app.tar"]
        raise PxError("PX903", problem="there is neither docker nor podman to load the image into", fix=fix)
    with subprocess.Popen(
        [client, "load"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as it:
        try:
            if it.stdin is not None:
                stream_archive(blobs, release, cast("BinaryIO", it.stdin))
            said = it.communicate()
        except BrokenPipeError:
            said = it.communicate()
    if it.returncode != 0:
        why = [said[1].decode("utf-8", "replace").strip()]
        fix = [f"See whether it works: {client} info", "Or write a file, for any tool: px pack image --out app.tar"]
        raise PxError("PX903", problem=f"{client} did not load the image", why=why, fix=fix, whole_fix=True)


def push(args: argparse.Namespace, blobs: Blobs, result: Result) -> tuple[Pushed, ...]:
    from px.oci.push import push as push_release
    from px.oci.referrers import Attachment, NotTakenError, attach
    from px.oci.registry import Registry
    from px.oci.sbom import MEDIA_TYPE

    pushed = push_release(blobs, result.release, result.names, insecure=args.insecure)
    for name in {n.repository: n for n in result.names}.values():
        registry = Registry(name, insecure=args.insecure)
        try:
            for packed in result.packed:
                attach(blobs, registry, packed.image.manifest, Attachment(MEDIA_TYPE, packed.bill))
        except NotTakenError as e:
            # The image is there and can be used: that is what the user asked for.
            console.warn(
                f"{name.host} does not take the bill of materials ({e.reason}); --sbom FILE writes it to a file"
            )
    return pushed


def report(args: argparse.Namespace, result: Result, pushed: Sequence[Pushed], seconds: float) -> None:
    """The summary of the specification, and the layers with their sizes."""
    print("Built image:")
    for name in result.names:
        print(f"  name:   {name}")
    print(f"  digest: {result.release.digest}")
    for packed in result.packed:
        image = packed.image
        print(f"  {image.spec.platform}: {len(image.layers)} layers, {image.size / 1e6:.1f} MB compressed")
        for use in image.layers:
            said = use.created_by.removeprefix("px: ")
            print(f"    {use.blob.size / 1e6:8.1f} MB  {said:<24} {use.blob.digest[:19]}")
    if args.out:
        print(f"  file:   {args.out}")
    for path in bill_paths(result, Path(args.sbom)) if args.sbom else ():
        print(f"  sbom:   {path}")
    for one in pushed:
        there = len(one.present) + len(one.mounted)
        sent = f"{len(one.sent)} blobs sent ({one.sent_bytes / 1e6:.1f} MB), {there} there already"
        print(f"  pushed: {one.names[0].repository}: {sent}")
    for packed in result.packed:
        derived, several = packed.derived, len(result.packed) > 1
        print(f"\nDerived from{f' ({packed.image.spec.platform})' if several else ''}:")
        print(f"  base: {derived.base.name} (base_os_oid={derived.base.oid})")
        print(f"  env:  profile_oid={derived.profile.oid}")
        print(f"  sbx:  sbx_id={derived.definition.sbx_id}")
    console.info(f"Packed in {seconds:.1f} s")


def details(result: Result, pushed: Sequence[Pushed]) -> dict[str, object]:
    return {
        "names": [str(n) for n in result.names],
        "digest": result.release.digest,
        "images": [
            {
                "platform": str(p.image.spec.platform),
                "digest": p.image.digest,
                "size": p.image.size,
                "layers": [
                    {"digest": u.blob.digest, "diff_id": u.blob.diff_id, "size": u.blob.size, "what": u.created_by}
                    for u in p.image.layers
                ],
                "base_os_oid": p.derived.base.oid,
                "profile_oid": p.derived.profile.oid,
                "sbx_id": p.derived.definition.sbx_id,
                "capabilities": sorted(p.derived.capabilities),
            }
            for p in result.packed
        ],
        "pushed": [
            {
                "names": [str(n) for n in p.names],
                "present": list(p.present),
                "mounted": list(p.mounted),
                "sent": list(p.sent),
                "sent_bytes": p.sent_bytes,
            }
            for p in pushed
        ],
    }
