"""What ``px sandbox explain`` says: the effective sandbox, and where each part of it comes from."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from px import console
from px.platforms import machine_of
from px.sandbox.layers.system import closure
from px.sandbox.needs.capabilities import table
from px.sandbox.needs.merged import base_sonames

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from px.debian.lock import BaseLock
    from px.sandbox.definition import Derived
    from px.sandbox.layers.layer import Layer
    from px.sandbox.manifest import SandboxManifest
    from px.sandbox.needs.inference import Inference, Reason, Unknown

_SHOWN_REASONS = 3


@dataclass(frozen=True)
class ExplainedCapability:
    """One capability, and why it is (or is not) in the sandbox."""

    name: str
    summary: str
    explicit: bool
    """Named in the manifest: as true if it is in the sandbox, as false if it is not."""
    reasons: tuple[Reason, ...]
    packages: tuple[str, ...] = ()
    """The system packages that it adds to the base, if it is in the sandbox."""


@dataclass(frozen=True)
class SystemPackage:
    """A Debian package of the sandbox beyond those of the base."""

    name: str
    version: str


@dataclass(frozen=True)
class LayerSize:
    """One layer of the image and how large it is unpacked."""

    what: str
    size: int


@dataclass(frozen=True)
class Explanation:
    """Everything that determines the sandbox, and the ids that follow from it."""

    base: str
    base_why: str
    architecture: str
    auto: bool
    capabilities: tuple[ExplainedCapability, ...]
    disabled: tuple[ExplainedCapability, ...]
    not_inferred: tuple[ExplainedCapability, ...]
    """What inference found although ``auto = false`` keeps it out."""
    unknown: tuple[Unknown, ...]
    packages: tuple[SystemPackage, ...]
    layers: tuple[LayerSize, ...]
    base_os_oid: str
    profile_oid: str
    sbx_id: str
    sbx_version: int
    warnings: tuple[str, ...] = ()
    pack_sbx_id: str = ""
    """The id that ``px pack image`` uses, which leaves the development groups out; the same if there are none."""

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def explain(derived: Derived, layers: Sequence[Layer]) -> Explanation:
    """Everything that is known about a derived sandbox and its layers."""
    store = derived.ground.context.store
    present, disabled, left_out = explain_capabilities(derived.manifest, derived.inference)
    sizes = [LayerSize(x.what, sum(int(e[3]) for e in x.entries(store) if e[0] == "f")) for x in layers]
    added = [p for layer in layers if layer.what == "system" for p in layer.packages]
    return Explanation(
        base=derived.base.name,
        base_why=base_reason(derived.manifest),
        architecture=derived.base.architecture,
        auto=derived.manifest.auto,
        capabilities=tuple(replace(one, packages=_brought(derived.base.lock, one.name)) for one in present),
        disabled=disabled,
        not_inferred=left_out,
        unknown=_absent(derived, layers),
        packages=tuple(SystemPackage(p.name, p.version) for p in added),
        layers=tuple(sizes),
        base_os_oid=derived.base.oid,
        profile_oid=derived.profile.oid,
        sbx_id=derived.definition.sbx_id,
        sbx_version=derived.definition.sbx_version,
        warnings=(derived.warning,) if derived.warning else (),
    )


def _brought(lock: BaseLock, capability: str) -> tuple[str, ...]:
    return tuple(sorted(set(closure(lock, capability)[0]) - set(lock.base)))


def _absent(derived: Derived, layers: Sequence[Layer]) -> tuple[Unknown, ...]:
    """Libraries that no capability stands for, less those that came along with another: libxcb-dri3 with OpenGL."""
    store, machine = derived.ground.context.store, machine_of(derived.base.architecture)
    if not derived.inference.unknown:
        return ()
    contents = [layer.contents(store) for layer in layers if layer.what in ("base", "system")]
    present = base_sonames(contents, machine, store.home)
    return tuple(u for u in derived.inference.unknown if u.soname not in present)


def base_reason(manifest: SandboxManifest) -> str:
    if manifest.base_is_default:
        return "the default: [tool.px.sandbox].base is not set"
    return f"[tool.px.sandbox].base in {manifest.path}"


def explain_capabilities(
    manifest: SandboxManifest, inference: Inference
) -> tuple[tuple[ExplainedCapability, ...], tuple[ExplainedCapability, ...], tuple[ExplainedCapability, ...]]:
    """(in the sandbox, switched off by name, left out because ``auto = false``)."""
    effective = manifest.effective(inference.capabilities)
    left_out = inference.capabilities - effective - manifest.disabled
    return (
        tuple(_explained(name, manifest, inference) for name in sorted(effective)),
        tuple(_explained(name, manifest, inference) for name in sorted(manifest.disabled)),
        tuple(_explained(name, manifest, inference) for name in sorted(left_out)),
    )


def _explained(name: str, manifest: SandboxManifest, inference: Inference) -> ExplainedCapability:
    explicit = name in manifest.enabled | manifest.disabled
    return ExplainedCapability(name, table()[name].summary, explicit, inference.reasons.get(name, ()))


def render(explanation: Explanation, *, verbose: bool = False) -> str:
    """The table for people."""
    return "\n".join(_lines(explanation, verbose=verbose)) + "\n"


def _lines(e: Explanation, *, verbose: bool) -> Iterator[str]:
    yield f"Base: {e.base} ({e.architecture})"
    yield f"  {e.base_why}"
    yield ""
    left_out = any(row.reasons for row in (*e.disabled, *e.not_inferred))
    none = "none" if left_out else "none needed"
    yield "Capabilities:" if e.capabilities else f"Capabilities: {none}"
    yield from _capabilities(e.capabilities, "true", verbose=verbose)
    if e.disabled:
        yield from ("", "Switched off:")
        yield from _capabilities(e.disabled, "false", verbose=verbose)
    if e.not_inferred:
        yield from ("", "Found, but not added, because auto = false:")
        yield from _capabilities(e.not_inferred, "", verbose=verbose)
    if e.unknown:
        yield from ("", "Libraries that px knows no capability for (the packages may do without them):")
        yield from _limited([f"  {u.package}: {u.file} needs {u.soname}" for u in e.unknown], verbose=verbose)
    yield from _packages(e, verbose=verbose)
    yield from ("", "Ids:")
    for name, value in (("base_os_oid", e.base_os_oid), ("profile_oid", e.profile_oid), ("sbx_id", e.sbx_id)):
        yield f"  {name:<12} {value}"
    if e.pack_sbx_id and e.pack_sbx_id != e.sbx_id:
        yield f"  {'':<12} {e.pack_sbx_id}  (px pack image: without the development groups)"
    for warning in e.warnings:
        yield from ("", f"warning: {warning}")


def _capabilities(rows: Sequence[ExplainedCapability], written: str, *, verbose: bool) -> Iterator[str]:
    width = max((len(row.name) for row in rows), default=0) + 2
    for row in rows:
        sources = [f"[tool.px.sandbox.capabilities].{row.name} = {written}"] if row.explicit else []
        would = "would have been inferred: " if written == "false" else ""
        sources += list(_limited([would + reason_line(r) for r in row.reasons], verbose=verbose))
        if written == "false" and not row.reasons:
            sources.append("nothing in this env asks for it")
        for i, source in enumerate(sources):
            yield f"  {row.name if i == 0 else '':<{width}}{source}"


def reason_line(reason: Reason) -> str:
    return f"{'lock' if reason.source == 'lock' else 'file'}: {reason.text}"


def _packages(e: Explanation, *, verbose: bool) -> Iterator[str]:
    if e.packages:
        yield from ("", f"Packages added to the base ({len(e.packages)}):")
        names = [f"  {p.name} {p.version}" for p in e.packages]
        yield from names if verbose else [_wrapped(e.packages)]
    if e.layers:
        total = sum(layer.size for layer in e.layers)
        sizes = ", ".join(f"{layer.what} {console.size(layer.size)}" for layer in e.layers)
        yield from ("", f"Size: {console.size(total)} unpacked ({sizes})")


def _wrapped(packages: Sequence[SystemPackage]) -> str:
    import textwrap

    text = ", ".join(f"{p.name}\N{NO-BREAK SPACE}{p.version}" for p in packages)
    lines = textwrap.wrap(text, 100, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ")


def _limited(lines: Sequence[str], *, verbose: bool) -> Iterator[str]:
    shown = lines if verbose else lines[:_SHOWN_REASONS]
    yield from shown
    if len(lines) > len(shown):
        indent = " " * (len(lines[0]) - len(lines[0].lstrip()))
        yield f"{indent}… and {len(lines) - len(shown)} more (-v shows them)"
