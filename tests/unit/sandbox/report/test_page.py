"""The pages as files: nothing from outside, nothing that a package says becomes markup.  A browser test opens them."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

from px.sandbox.manifest import SandboxManifest
from px.sandbox.needs.inference import Reason, Unknown
from px.sandbox.report.contents import PYTHON, SYSTEM, Contents, Package, Weight
from px.sandbox.report.diff import difference
from px.sandbox.report.explain import ExplainedCapability, Explanation
from px.sandbox.report.page.diff import diff_page
from px.sandbox.report.page.explain import explain_page
from px.sandbox.report.page.graph import graph
from px.sandbox.report.page.markup import tag
from tests.unit.sandbox.report.test_diff import NEW, OLD
from tests.unit.sandbox.report.test_explain import explanation

EVIL = "</script><img src=x onerror=window.evil=1>\u202e\x00\u2028&\"'"


def contents(*names: str) -> Contents:
    packages = tuple(
        Package(PYTHON, name, "1.0", 1000 * (i + 1), (f"licence of {name}",)) for i, name in enumerate(names)
    )
    return Contents(packages, tuple(Weight("env", p.kind, p.name, p.size) for p in packages))


class Seen(HTMLParser):
    """The elements of a page, with their attributes."""

    def __init__(self, page: bytes):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))


def test_pages_load_nothing() -> None:
    for page in (
        explain_page("shop", explanation(SandboxManifest()), contents("a", "b")),
        diff_page(difference(OLD, NEW)),
    ):
        for name, attributes in Seen(page).elements:
            assert name not in ("img", "link", "iframe", "object", "base", "form")
            assert not {"src", "style", "onclick"} & attributes.keys()
            assert (attributes.get("href") or "#").startswith("#")
        assert b"http:" not in page.replace(b"http://www.w3.org/2000/svg", b"")
        assert b"https:" not in page


def test_the_policy_allows_the_pages_own_style_and_script_and_nothing_else() -> None:
    page = explain_page("shop", explanation(SandboxManifest()), contents("a")).decode()
    policy = next(a["content"] for _, a in Seen(page.encode()).elements if a.get("http-equiv")) or ""
    assert policy.startswith("default-src 'none'; ")
    for element in ("style", "script"):
        found = re.search(rf"<{element}>(.*?)</{element}>", page, re.DOTALL)
        assert found
        digest = base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()
        assert f"{element}-src 'sha256-{digest}';" in policy


def hostile_page() -> bytes:
    """A page of a sandbox in which everything that others write is an attempt to be more than text."""
    reason = Reason("elf", EVIL, EVIL, EVIL, EVIL, EVIL)
    base = explanation(SandboxManifest())
    hostile = Explanation(
        **{
            **vars(base),
            "base_why": EVIL,
            "capabilities": (ExplainedCapability(EVIL, EVIL, True, (reason,), (EVIL,)),),
            "unknown": (Unknown(EVIL, EVIL, EVIL),),
            "warnings": (EVIL,),
        }
    )
    packages = (Package(PYTHON, EVIL, EVIL, 1, (EVIL,)), Package(SYSTEM, EVIL, EVIL, 1, (EVIL,)))
    return explain_page(EVIL, hostile, Contents(packages, (Weight(EVIL, PYTHON, EVIL, 1),)))


def test_what_packages_say_stays_text() -> None:
    page = hostile_page()
    seen = Seen(page)
    assert [name for name, _ in seen.elements].count("script") == 2
    assert not [a for _, a in seen.elements if "onerror" in a]
    assert b"\x00" not in page
    assert "\u202e" not in page.decode()
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.decode(), re.DOTALL)
    assert found
    assert "<" not in found[1]
    assert json.loads(found[1])["tiles"][0]["name"].startswith("</script><img")


def test_attributes_are_quoted() -> None:
    made = tag("td", "a<b", data_value='"><script>', hidden=True, class_="x", open=False)
    assert made == '<td data-value="&quot;&gt;&lt;script&gt;" hidden class="x">a&lt;b</td>'


def test_the_same_sandbox_gives_the_same_bytes() -> None:
    made = [explain_page("shop", explanation(SandboxManifest()), contents("a", "b")) for _ in range(2)]
    assert made[0] == made[1]


BROUGHT = tuple(f"lib{i}" for i in range(60))


def large_explanation() -> Explanation:
    reasons = tuple(
        Reason("elf", f"p{i}", "1", f"p{i} needs it", f"lib/p{i}/part{j}.so", "libGL.so.1")
        for i in range(300)
        for j in range(50)
    )
    base = explanation(SandboxManifest())
    return Explanation(
        **{
            **vars(base),
            "capabilities": (ExplainedCapability("opengl", "OpenGL", False, reasons, BROUGHT),),
            "packages": tuple(Package(SYSTEM, name, "1", 1, ()) for name in BROUGHT),
        }
    )


def test_hundreds_of_packages_and_files_stay_a_page() -> None:
    many = large_explanation()
    found = graph(many, dict.fromkeys(BROUGHT, 1000)).as_json()
    nodes = found["nodes"]
    assert isinstance(nodes, list)
    columns = [sum(1 for node in nodes if node["column"] == column) for column in range(5)]
    assert columns == [300, 300, 1, 1, 9]
    assert [node["label"] for node in nodes if node["column"] == 4][-1] == "52 lighter ones"
    page = explain_page("shop", many, contents(*(f"p{i}" for i in range(300))))
    assert len(page) < 5_000_000
