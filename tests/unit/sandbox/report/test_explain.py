"""What ``px sandbox explain`` prints, for people and for machines."""

from __future__ import annotations

import json
from pathlib import Path

from px.sandbox.manifest import SandboxManifest
from px.sandbox.needs.inference import Inference, Reason, Unknown
from px.sandbox.report.explain import Explanation, LayerSize, SystemPackage, base_reason, explain_capabilities, render

REASONS = {
    "postgres": (
        Reason("lock", "psycopg2", "2.9", "psycopg2: its sdist is built against it"),
        Reason("elf", "psycopg2", "2.9", "psycopg2: lib/_psycopg.so needs libpq.so.5", "lib/_psycopg.so", "libpq.so.5"),
    ),
    "xml": tuple(Reason("elf", "x", "1", f"x: lib/{i}.so needs libxml2.so.2") for i in range(9)),
}
INFERENCE = Inference(REASONS, (Unknown("y", "lib/y.so", "libcuda.so.1"),))


def explanation(manifest: SandboxManifest) -> Explanation:
    capabilities, disabled, not_inferred = explain_capabilities(manifest, INFERENCE)
    return Explanation(
        base=manifest.base,
        base_why=base_reason(manifest),
        architecture="amd64",
        auto=manifest.auto,
        capabilities=capabilities,
        disabled=disabled,
        not_inferred=not_inferred,
        unknown=INFERENCE.unknown,
        packages=(SystemPackage("libpq5", "15.1"),),
        layers=(LayerSize("base", 80_000_000), LayerSize("system", 1_500_000)),
        base_os_oid="a" * 64,
        profile_oid="b" * 64,
        sbx_id="c" * 64,
        sbx_version=1,
        warnings=("mind the gap",),
    )


def test_every_part_is_there_with_its_source() -> None:
    text = render(explanation(SandboxManifest(enabled=frozenset({"curl"}))))
    for part in (
        "Base: debian-12 (amd64)",
        "the default: [tool.px.sandbox].base is not set",
        "  curl      [tool.px.sandbox.capabilities].curl = true",
        "  postgres  lock: psycopg2: its sdist is built against it",
        "            file: psycopg2: lib/_psycopg.so needs libpq.so.5",
        "            … and 6 more (-v shows them)",
        "  y: lib/y.so needs libcuda.so.1",
        "  libpq5 15.1",
        "Size: 81.5 MB unpacked (base 80.0 MB, system 1.5 MB)",
        f"  sbx_id       {'c' * 64}",
        "warning: mind the gap",
    ):
        assert part in text.splitlines() or part in text, part


def test_verbose_shows_every_reason() -> None:
    assert "lib/8.so" in render(explanation(SandboxManifest()), verbose=True)
    assert "lib/8.so" not in render(explanation(SandboxManifest()))


def test_what_is_switched_off_says_that_it_would_have_been_inferred() -> None:
    found = explanation(SandboxManifest(disabled=frozenset({"postgres", "magic"})))
    assert "postgres" not in [c.name for c in found.capabilities]
    text = render(found)
    assert "[tool.px.sandbox.capabilities].postgres = false" in text
    assert "would have been inferred: file: psycopg2: lib/_psycopg.so needs libpq.so.5" in text
    assert "nothing in this env asks for it" in text


def test_auto_false_shows_what_it_leaves_out() -> None:
    found = explanation(SandboxManifest(auto=False))
    assert found.capabilities == ()
    assert [c.name for c in found.not_inferred] == ["postgres", "xml"]
    assert "because auto = false" in render(found)
    assert "Capabilities: none\n" in render(found)


def test_a_base_of_ones_own_choice() -> None:
    manifest = SandboxManifest(Path("pyproject.toml"), "debian-13", base_is_default=False)
    assert base_reason(manifest) == "[tool.px.sandbox].base in pyproject.toml"


def test_json_is_plain() -> None:
    found = json.loads(json.dumps(explanation(SandboxManifest()).as_json()))
    assert found["sbx_id"] == "c" * 64
    assert found["capabilities"][0]["name"] == "postgres"
    assert found["capabilities"][0]["reasons"][1] == {
        "source": "elf",
        "package": "psycopg2",
        "version": "2.9",
        "text": "psycopg2: lib/_psycopg.so needs libpq.so.5",
        "file": "lib/_psycopg.so",
        "soname": "libpq.so.5",
    }
