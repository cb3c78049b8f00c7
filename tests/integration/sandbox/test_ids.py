"""What an id depends on: a package's build on that package alone, a sandbox on its effective set."""

from __future__ import annotations

import json
from pathlib import Path

from px.home import Home
from tests.integration.sandbox.conftest import lock
from tests.integration.sandbox.native import make_sdist, write_project
from tests.support.px import run_px


def synced(root: Path) -> tuple[str, str, str]:
    """The profile, the sandbox, and what was said while they were made."""
    done = run_px("sync", "--sandbox", "--json", cwd=root)
    details = json.loads(done.stdout)["details"]
    return details["profile_oid"], details["sbx_id"], done.stderr


def test_capabilities_that_a_package_does_not_need_rebuild_nothing(database: Path, warm: Home) -> None:
    profile, sandbox, _ = synced(database)
    # Inferred already: explicit or not, the effective set is the same.
    run_px("sandbox", "add", "postgres", cwd=database)
    assert synced(database)[:2] == (profile, sandbox)
    run_px("sandbox", "add", "xml", cwd=database)
    again, other, said = synced(database)
    assert again == profile
    assert other != sandbox
    assert "Building" not in said


def test_a_build_gets_what_it_asks_for_and_no_more(tmp_path: Path, warm: Home) -> None:
    sdist = make_sdist(tmp_path, "asksmagic", includes="#include <magic.h>", libraries="-lmagic")
    profiles = []
    for number, names in enumerate((["magic"], ["magic", "xml"])):
        root = lock(write_project(tmp_path / f"p{number}", sdist))
        run_px("sandbox", "add", *names, cwd=root)
        profiles.append(synced(root)[0])
    assert profiles[0] == profiles[1]


def test_the_manifest_says_what_one_package_is_built_with(tmp_path: Path, warm: Home) -> None:
    optional = "#if __has_include(<magic.h>)\n#define __OPTIMIZE__ 1\n#else\n#undef __OPTIMIZE__\n#endif"
    root = lock(write_project(tmp_path / "p", make_sdist(tmp_path, "mayuse", includes=optional)))
    ask = ("run", "--sandbox", "python", "-c", "import mayuse; print(hasattr(mayuse, 'optimized'))")
    run_px("sandbox", "add", "magic", cwd=root)
    assert run_px(*ask, cwd=root).stdout == "False\n"
    manifest = root / "pyproject.toml"
    manifest.write_text(f'{manifest.read_text()}\n[tool.px.sandbox.build]\nmayuse = ["magic"]\n')
    assert run_px(*ask, cwd=root).stdout == "True\n"
    manifest.write_text(manifest.read_text().replace('["magic"]', '["magick"]'))
    assert run_px("status", cwd=root, check=False).stderr.startswith("PX901")
