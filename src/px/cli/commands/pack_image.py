"""``px pack image``: the project and its sandbox as one deployable OCI image."""

from __future__ import annotations

import re
import shlex
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from px import console
from px.cli.answer import emit
from px.cli.flags import architectures
from px.errors import PxError
from px.oci.layout import check_replaceable
from px.oci.registry.reference import parse
from px.process import tidy_end
from px.project.selection import Selection
from px.project.state import Target
from px.workflow.autoadd import adding
from px.workflow.door import permitted
from px.workflow.pack import Delivery, PackOptions, check_clean, deliver, described, pack_all, production
from px.workflow.tasks.packages import Tasks

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from px.oci.registry.push import Pushed
    from px.project.context import Context
    from px.workflow.pack import PackedRelease

_EPILOG = """\
The image has the base, the system libraries of the capabilities, the locked packages, and the files of the
working tree that git does not ignore. The same commit gives the same digest on every machine.

Its packages are those that `px sync --sandbox` chose last, extras and groups included, without the development
groups (`dev`, or uv's default-groups). Flags that choose groups or extras replace that choice.

  px pack image --out app.tar && docker load < app.tar
  px pack image --tag registry.example.org/app:1.0 --push
  px pack image --platform linux/amd64,linux/arm64 --out app/
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("--tag", action="append", default=[], metavar="NAME", help="the image's name; may be repeated")
    parser.add_argument("--out", metavar="PATH", help="write it: an archive (x.tar) or an OCI layout (dir/)")
    parser.add_argument("--push", action="store_true", help="push it to the registry that --tag names")
    parser.add_argument("--load", action="store_true", help="hand it to docker or podman on this machine")
    parser.add_argument("--platform", default="", metavar="LIST", help="linux/amd64, linux/arm64 or both")
    parser.add_argument("--format", choices=("oci", "docker"), default="oci", help="media types (default: oci)")
    parser.add_argument(
        "--compression", choices=("gzip", "zstd"), default="gzip", help="how layers are compressed (default: gzip)"
    )
    parser.add_argument(
        "--auto-add", action="store_true", help="if a build asks for a capability, add it for this image and try again"
    )
    parser.add_argument("--allow-dirty", action="store_true", help="pack uncommitted changes too")
    parser.add_argument("--insecure", action="store_true", help="allow a registry without TLS")
    image = parser.add_argument_group("what the image does")
    image.add_argument(
        "--entrypoint",
        metavar="COMMAND",
        help="what it runs (default: the only console script; '' for none)",
    )
    image.add_argument(
        "--cmd", metavar="ARGUMENTS", help="default arguments of the entrypoint, or a command if it has none"
    )
    image.add_argument(
        "--expose", action="append", default=[], metavar="PORT", help="a port it listens on: 8000, 53/udp"
    )
    image.add_argument("--label", action="append", default=[], metavar="NAME=VALUE", help="a label of your own")
    image.add_argument(
        "--metaflow",
        choices=("s3", "azure", "gs"),
        help="for tasks of Metaflow with this datastore: what they need to reach it is in the image",
    )
    image.add_argument("--sbom", metavar="FILE", help="write the bill of materials (CycloneDX) to FILE")
    what = parser.add_argument_group("what is installed")
    what.add_argument("--group", action="append", default=[], metavar="NAME", help="include a dependency group")
    what.add_argument("--no-group", action="append", default=[], metavar="NAME", help="leave a dependency group out")
    what.add_argument("--all-groups", action="store_true", help="include every dependency group")
    what.add_argument("--extra", action="append", default=[], metavar="NAME", help="include an extra of the project")
    what.add_argument("--all-extras", action="store_true", help="include every extra")
    what.add_argument("--reset", action="store_true", help="neither the groups nor the extras that were synced")


def main(args: argparse.Namespace, context: Context) -> int:
    check_places(args, offline=context.offline)
    options, names = image_options(args), [parse(text, bare=not args.push) for text in args.tag]
    started = time.monotonic()
    with tidy_end(), permitted(context, "pack image") as situation:
        clean = check_clean(context.project, allow_dirty=args.allow_dirty, outputs=outputs(args))
        selection = production(context.project, situation.selection(Target.SANDBOX), selection_from(args))
        options = replace(options, clean=clean)

        def work(more: frozenset[str]) -> PackedRelease:
            return pack_all(situation, selection, replace(options, more=more), architectures(args.platform), names)

        packed = adding(context, work) if args.auto_add else work(frozenset())
        if not args.allow_dirty:  # a file that was saved meanwhile may be in the image
            check_clean(context.project, allow_dirty=False, outputs=outputs(args), warn=False)
        pushed = deliver(context, packed, Delivery(args.out, args.sbom, args.load, args.push, args.insecure))
    if not args.json:
        report(args, packed, pushed, time.monotonic() - started)
    emit(args, f"built {packed.names[0]}", details(packed, pushed))
    return 0


def selection_from(args: argparse.Namespace) -> Selection | None:
    """What the flags ask for; None when they say nothing, so that what was synced counts."""
    chosen = Selection(
        groups=tuple(sorted(set(args.group))),
        no_groups=tuple(sorted(set(args.no_group))),
        extras=tuple(sorted(set(args.extra))),
        all_groups=args.all_groups,
        all_extras=args.all_extras,
    )
    return chosen if args.reset or chosen != Selection() else None


def check_places(args: argparse.Namespace, *, offline: bool = False) -> None:
    """Names that cannot be pushed to, or a place that cannot be written to, are said before anything is built."""
    names = [parse(text, bare=not args.push) for text in args.tag]
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
    return PackOptions(
        entrypoint=words("--entrypoint", args.entrypoint),
        cmd=words("--cmd", args.cmd) or (),
        ports=tuple(ports(args.expose)),
        labels=labels(args.label),
        format=args.format,
        compression=args.compression,
        outputs=outputs(args),
        tasks=Tasks(args.metaflow) if args.metaflow else None,
    )


def words(option: str, text: str | None) -> tuple[str, ...] | None:
    """A command as a shell would split it."""
    try:
        return None if text is None else tuple(shlex.split(text))
    except ValueError as e:
        example = f"{option} 'serve --name \"my app\"'"
        problem = f"it cannot be split into words ({str(e).lower()})"
        raise PxError("PX040", option=option, value=text, problem=problem, example=example) from e


def outputs(args: argparse.Namespace) -> tuple[Path, ...]:
    """What this command writes: it may lie in the working tree, and is not part of the app."""
    return tuple(Path(path) for path in (args.out, args.sbom) if path)


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


def report(args: argparse.Namespace, packed: PackedRelease, pushed: Sequence[Pushed], seconds: float) -> None:
    """The summary of the specification, and the layers with their sizes."""
    print("Built image:")
    for name in packed.names:
        print(f"  name:   {name}")
    print(f"  digest: {packed.release.digest}")
    print(f"  with:   {described(packed.selection)}")
    for one in packed.images:
        image = one.image
        layers = console.counted(len(image.layers), "layer")
        print(f"  {image.spec.platform}: {layers}, {console.size(image.size)} compressed")
        for use in image.layers:
            said = use.created_by.removeprefix("px: ")
            print(f"    {console.size(use.blob.size):>11}  {said:<24} {use.blob.digest[:19]}")
    if args.out:
        print(f"  file:   {args.out}")
    for path in packed.bill_paths(Path(args.sbom)) if args.sbom else ():
        print(f"  sbom:   {path}")
    for to in pushed:
        there = len(to.present) + len(to.mounted)
        sent = (
            f"{console.counted(len(to.sent), 'blob')} sent ({console.size(to.sent_bytes)})"
            if to.sent
            else "nothing sent"
        )
        sent += f", {there} there already" if there else ""
        print(f"  pushed: {to.names[0].repository}: {sent}")
    for one in packed.images:
        derived, several = one.steps.derived, len(packed.images) > 1
        print(f"\nDerived from{f' ({one.image.spec.platform})' if several else ''}:")
        print(f"  base: {derived.base.name} (base_os_oid={derived.base.oid})")
        print(f"  env:  profile_oid={derived.profile.oid}")
        print(f"  sbx:  sbx_id={derived.definition.sbx_id}")
    console.info(f"Packed in {console.duration(seconds)}")


def details(packed: PackedRelease, pushed: Sequence[Pushed]) -> dict[str, object]:
    return {
        "names": [str(n) for n in packed.names],
        "digest": packed.release.digest,
        "selection": packed.selection.as_json(),
        "images": [
            {
                "platform": str(p.image.spec.platform),
                "digest": p.image.digest,
                "size": p.image.size,
                "layers": [
                    {"digest": u.blob.digest, "diff_id": u.blob.diff_id, "size": u.blob.size, "what": u.created_by}
                    for u in p.image.layers
                ],
                "base_os_oid": p.steps.derived.base.oid,
                "profile_oid": p.steps.derived.profile.oid,
                "sbx_id": p.steps.derived.definition.sbx_id,
                "capabilities": sorted(p.steps.derived.capabilities),
            }
            for p in packed.images
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
