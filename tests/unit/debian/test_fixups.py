"""Fix-ups on small trees; the integration tests compare them with the real tools on a real base."""

from __future__ import annotations

import tarfile
from contextlib import nullcontext
from hashlib import md5
from typing import TYPE_CHECKING

import pytest

from px.debian.fixups import database
from px.debian.fixups.accounts import accounts
from px.debian.fixups.alternatives import Group, alternatives, calls, decode, encode
from px.debian.fixups.apt import empty_files, pam
from px.debian.fixups.certificates import subject_hash
from px.debian.fixups.files import shells
from px.debian.fixups.ldcache import CacheEntry, compare_names
from px.debian.fixups.ldcache import encode as encode_cache
from px.debian.fixups.libraries import graphviz_plugins, odbc_drivers, pixbuf_loaders
from px.debian.fixups.status import status
from px.debian.image import Below, Image
from px.debian.unpack import Unpacked
from px.store.tree import TreeWriter, UnsafePathError
from tests.support.debian import make_deb, make_lock, pin, tar_member

if TYPE_CHECKING:
    from pathlib import Path

    from px.store.objects import Store


@pytest.fixture
def image(tmp_path: Path) -> Image:
    made = Image(TreeWriter(tmp_path / "tree"))
    made.directory("usr/bin")
    made.link("bin", "usr/bin")
    return made


def package(name: str, *, postinst: str = "", md5sums: str = "", version: str = "1.0-1") -> Unpacked:
    control = f"Package: {name}\nVersion: {version}\n".encode()
    return Unpacked(pin(name, b"x", version=version), control, md5sums.encode(), postinst.encode())


def target(image: Image, path: str) -> str:
    found = image.entry(path)
    assert found is not None
    assert found[0] == "l"
    return str(found[2])


def test_links_are_followed_inside_the_image(image: Image) -> None:
    image.file("bin/tool", b"1")
    assert image.entry("usr/bin/tool") is not None
    image.link("etc/a", "/usr/../usr/./bin")
    assert image.resolve("etc/a/tool") == "usr/bin/tool"
    image.link("x", "../../../etc/a")
    assert image.read("x/tool") == b"1"
    image.link("loop", "loop")
    with pytest.raises(UnsafePathError, match="too many links"):
        image.resolve("loop/file")
    with pytest.raises(FileNotFoundError):
        image.read("nothing")


def test_accounts(image: Image) -> None:
    image.file("usr/share/base-passwd/passwd.master", b"root:*:0:0:root:/root:/bin/bash\nbin:*:2:2::/bin:/x\n")
    image.file("usr/share/base-passwd/group.master", b"root:*:0:\nbin:*:2:\n")
    accounts(image, ())
    assert image.read("etc/passwd").decode().splitlines() == [
        "root:x:0:0:root:/root:/bin/bash",
        "bin:x:2:2::/bin:/x",
        "px:x:1000:1000::/home/px:/bin/bash",
    ]
    assert image.read("etc/group") == b"root:x:0:\nbin:x:2:\npx:x:1000:\n"
    assert image.read("etc/shadow").startswith(b"root:*::0:99999:7:::\n")
    assert image.entry("etc/shadow")[2] == 0o640  # type: ignore[index]


MAWK = """#!/bin/sh
if [ "$1" = "configure" ]; then
    update-alternatives --install /usr/bin/awk awk /usr/bin/mawk 5 \\
        --slave /usr/share/man/man1/awk.1.gz awk.1.gz /usr/share/man/man1/mawk.1.gz \\
        --slave /usr/bin/nawk nawk /usr/bin/mawk
fi
"""
GAWK = 'update-alternatives --quiet --install "/usr/bin/awk" awk /usr/bin/gawk 10 || true\n'


def test_alternatives_are_read_not_run() -> None:
    (found,) = calls(MAWK)
    assert (found.link, found.name, found.path, found.priority) == ("/usr/bin/awk", "awk", "/usr/bin/mawk", 5)
    assert found.slaves[1] == ("/usr/bin/nawk", "nawk", "/usr/bin/mawk")
    assert list(calls("update-alternatives --install /usr/bin/$x x /y 5\nupdate-alternatives --remove a b\n")) == []
    assert list(calls("# nothing\nupdate-alternatives --auto awk\n")) == []


def test_alternatives(image: Image) -> None:
    image.file("bin/mawk", b"")
    alternatives(image, [package("mawk", postinst=MAWK), package("gawk", postinst=GAWK)])
    assert target(image, "usr/bin/awk") == "/etc/alternatives/awk"
    assert target(image, "etc/alternatives/awk") == "/usr/bin/mawk"  # there is no gawk
    assert target(image, "usr/bin/nawk") == "/etc/alternatives/nawk"
    assert "awk.1.gz" not in image.read("var/lib/dpkg/alternatives/awk").decode()


def test_a_layer_goes_on_from_the_alternatives_below(image: Image, tmp_path: Path) -> None:
    image.file("bin/mawk", b"")
    alternatives(image, [package("mawk", postinst=MAWK)])
    below = Below(image.writer.root, image.writer.finish())  # type: ignore[arg-type]
    upper = Image(TreeWriter(tmp_path / "upper"), [below])
    upper.file("bin/gawk", b"")
    alternatives(upper, [package("gawk", postinst=GAWK)])
    assert target(upper, "etc/alternatives/awk") == "/usr/bin/gawk"
    group = decode("awk", upper.read("var/lib/dpkg/alternatives/awk"))
    assert sorted(group.choices) == ["/usr/bin/gawk", "/usr/bin/mawk"]
    assert encode(group) == upper.read("var/lib/dpkg/alternatives/awk")


def test_a_real_file_in_the_place_of_an_alternative_stays(image: Image) -> None:
    image.file("bin/mawk", b"")
    image.file("bin/awk", b"mine")
    alternatives(image, [package("mawk", postinst=MAWK)])
    assert image.read("bin/awk") == b"mine"


def test_ties_between_alternatives_have_one_winner() -> None:
    group = Group("x", "/usr/bin/x")
    for script in ("--install /usr/bin/x x /b 5", "--install /usr/bin/x x /a 5"):
        (call,) = calls(f"update-alternatives {script}")
        from px.debian.fixups.alternatives import _register

        _register(group, call)
    assert group.best().path == "/a"


def test_status(image: Image) -> None:
    image.file("bin/a", b"1")
    status(image, [package("a", md5sums=f"{'0' * 32}  bin/a\n{'1' * 32}  usr/share/man/man1/a.1.gz\n")])
    assert image.read("var/lib/dpkg/status.d/a.md5sums").decode() == f"{'0' * 32}  bin/a\n"
    assert image.read("var/lib/dpkg/status.d/a") == b"Package: a\nVersion: 1.0-1\nStatus: install ok installed\n"


def test_shells(image: Image) -> None:
    image.file("usr/share/debianutils/shells", b"# shells\n/bin/sh\n")
    image.file("usr/share/debianutils/shells.d/bash", b"/bin/bash\n# no\n/bin/rbash\n")
    shells(image, ())
    assert image.read("etc/shells").decode() == (
        "# shells\n/bin/sh\n/usr/bin/sh\n/bin/bash\n/usr/bin/bash\n/bin/rbash\n/usr/bin/rbash\n"
    )


@pytest.mark.parametrize(
    ("smaller", "larger"),
    [
        ("libc.so.6", "libz.so.1"),
        ("libx.so.2", "libx.so.10"),
        ("liba.so", "liba.so.1"),
        ("lib-x.so", "lib1.so"),
        ("liba", "libb"),
    ],
)
def test_library_names_compare_as_glibc_does(smaller: str, larger: str) -> None:
    assert compare_names(smaller, larger) < 0 < compare_names(larger, smaller)
    assert compare_names(smaller, smaller) == 0


def test_the_cache_shares_the_tails_of_strings() -> None:
    entries = [CacheEntry("libz.so.1", "/lib/libz.so.1"), CacheEntry("libc.so.6", "/lib/libc.so.6")]
    cache = encode_cache(entries, 0x303, b"test")
    assert cache == encode_cache(entries[::-1], 0x303, b"test")
    assert cache.count(b"libz.so.1\0") == 1
    assert cache[:20] == b"glibc-ld.so.cache1.1"
    assert cache.endswith(b"test")


def test_plugins_are_cut_down_to_what_is_there(image: Image) -> None:
    libraries = "usr/lib/x86_64-linux-gnu"
    image.file(f"{libraries}/graphviz/libgvplugin_core.so.6", b"")
    image.file(f"{libraries}/gdk-pixbuf-2.0/2.10.0/loaders/libpixbufloader-gif.so", b"")
    graphviz_plugins(image, [package("libgvc6")])
    pixbuf_loaders(image, [package("libgdk-pixbuf-2.0-0", version="2.42.10+dfsg-1")])
    config = image.read(f"{libraries}/graphviz/config6a").decode()
    assert "libgvplugin_core.so.6 core {" in config
    assert "libgvplugin_gd" not in config
    cache = image.read(f"{libraries}/gdk-pixbuf-2.0/2.10.0/loaders.cache").decode()
    assert "from gdk-pixbuf-2.42.10\n" in cache
    assert cache.count(".so") == 1


def test_odbc_without_freetds(image: Image) -> None:
    odbc_drivers(image, [package("unixodbc-common")])
    assert image.read("etc/odbcinst.ini") == b""


def test_subject_hash_of_a_certificate_without_version() -> None:
    # An X.509 v1 certificate has no version field, so its subject is one field earlier.
    def seq(tag: int, content: bytes) -> bytes:
        return bytes([tag, len(content)]) + content

    name = seq(0x30, seq(0x31, seq(0x30, seq(6, b"\x55\x04\x03") + seq(19, b"  A  b "))))
    fields = [seq(2, b"\1"), seq(0x30, b""), seq(0x30, b""), seq(0x30, b""), name]
    v1 = seq(0x30, seq(0x30, b"".join(fields)))
    v3 = seq(0x30, seq(0x30, seq(0xA0, seq(2, b"\2")) + b"".join(fields)))
    assert subject_hash(v1) == subject_hash(v3)


def test_only_layers_with_these_packages_get_files_for_apt(image: Image) -> None:
    for fix_up in (pam, empty_files):
        fix_up(image, [package("libpq5"), package("perl-base")])
    assert sorted(image.paths()) == ["bin", "usr", "usr/bin"]
    empty_files(image, [package("login")])
    assert image.read("etc/subuid") == image.read("etc/subgid") == b""


def test_the_database_of_dpkg(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [
        tar_member("./", kind=tarfile.DIRTYPE, mode=0o755),
        tar_member("./etc/demo.conf", b"a = 1\n"),
        tar_member("./usr/bin/demo", b"x", mode=0o755),
    ]
    scripts = {
        "conffiles": b"/etc/demo.conf\nremove-on-upgrade /etc/old.conf\n",
        "postinst": b"#!/bin/sh\n",
        "triggers": b"interest-noawait /usr/share/demo\ninterest demo-changed # why\nactivate ldconfig\n",
    }
    content = make_deb("libdemo", files, fields="Multi-Arch: same\n", scripts=scripts)
    found = pin("libdemo", content)
    (tmp_path / "libdemo.deb").write_bytes(content)
    monkeypatch.setattr(database, "arriving", lambda *_: nullcontext(lambda _: tmp_path / "libdemo.deb"))
    tree = TreeWriter(tmp_path / "tree")
    database.write_database(store, make_lock([found]), [found], tree)
    tree.finish()
    dpkg = tmp_path / "tree/var/lib/dpkg"
    digest = md5(b"a = 1\n").hexdigest()
    assert (
        (dpkg / "status").read_text().endswith(f"Status: install ok installed\nConffiles:\n /etc/demo.conf {digest}\n")
    )
    assert (dpkg / "info/libdemo:amd64.list").read_text() == "/.\n/etc/demo.conf\n/usr/bin/demo\n"
    assert (dpkg / "info/libdemo:amd64.postinst").stat().st_mode & 0o111
    assert (dpkg / "triggers/File").read_text() == "/usr/share/demo libdemo:amd64/noawait\n"
    assert (dpkg / "triggers/demo-changed").read_text() == "libdemo:amd64\n"
    sources = (tmp_path / "tree/etc/apt/sources.list.d/debian.sources").read_text()
    assert "Suites: bookworm bookworm-updates\n" in sources
    assert "Suites: bookworm-security\n" in sources
