"""Rules, modes and DNS of a limited network: what is accepted, what is refused, and packets that mean harm."""

from __future__ import annotations

import ipaddress
import random
import struct

import pytest

from px.engines.network import dns
from px.engines.network.modes import Wanted, parse_flags, settle
from px.engines.network.rules import Policy, Publish, Rule, parse_publish, parse_rule
from px.errors import PxError
from px.warm.spec import Reach


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("api.example.org", Rule("api.example.org", (80, 443))),
        ("API.Example.org.:443", Rule("api.example.org", (443,))),
        ("*.example.org:443,80", Rule("*.example.org", (80, 443))),
        ("db", Rule("db")),
        ("_service.example.org:1", Rule("_service.example.org", (1,))),
        ("10.0.0.0/8:5432", Rule("10.0.0.0/8", (5432,))),
        ("10.1.2.3", Rule("10.1.2.3")),
        ("2001:db8::1", Rule("2001:db8::1")),
        ("[2001:db8::/32]:22", Rule("2001:db8::/32", (22,))),
    ],
)
def test_rules(text: str, expected: Rule) -> None:
    assert parse_rule(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", ":80", "a b", "*", "*.*.org", "a.*.org", "http://a.org", "a.org/x", "a.org:0", "a.org:65536", "a.org:http",
     "a.org:1,,2", "-a.org", "a..org", "10.0.0.0/33", "300.1.1.1", "[::1", "x" * 64, "a.org:٣",
     "a:" + ",".join(map(str, range(1, 70)))],
)  # fmt: skip
def test_rules_refused(text: str) -> None:
    with pytest.raises(PxError) as caught:
        parse_rule(text)
    assert caught.value.code == "PX040"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8000", Publish("127.0.0.1", 8000, 8000)),
        ("8000:80", Publish("127.0.0.1", 8000, 80)),
        ("0.0.0.0:8000", Publish("0.0.0.0", 8000, 8000)),
        ("localhost:8000:80", Publish("localhost", 8000, 80)),
        ("[::1]:8000:80", Publish("::1", 8000, 80)),
    ],
)
def test_publish(text: str, expected: Publish) -> None:
    assert parse_publish(text) == expected


@pytest.mark.parametrize("text", ["", "0", "x", "1:2:3:4", "70000", "1:70000", "::1:80", ":80"])
def test_publish_refused(text: str) -> None:
    with pytest.raises(PxError, match=r"\[HOST:\]PORT"):
        parse_publish(text)


def test_a_wildcard_is_for_names_below() -> None:
    policy = Policy.of(["*.example.org:443", "api.example.org:5000"])
    assert policy.ports_of("api.example.org") == (443, 5000)
    assert policy.ports_of("a.b.example.org") == (443,)
    assert policy.ports_of("example.org") == policy.ports_of("badexample.org") == ()


SPECIAL = [
    "127.0.0.1", "127.9.9.9", "0.0.0.0", "169.254.169.254", "224.0.0.1", "::1", "::", "fe80::1", "::ffff:127.0.0.1",
    "::ffff:169.254.169.254", "64:ff9b::7f00:1", "2002:7f00:1::", "fd00:ec2::254", "168.63.129.16", "100.100.100.200",
]  # fmt: skip


@pytest.mark.parametrize("address", SPECIAL)
def test_names_and_wide_ranges_do_not_open_special_addresses(address: str) -> None:
    parsed = ipaddress.ip_address(address)
    policy = Policy.of(["*.example.org", "0.0.0.0/0", "[::/0]", "100.64.0.0/10"])
    assert not policy.may_lead_to("a.example.org", parsed, 443)
    assert not policy.allows(parsed, 443)
    named = Policy.of(["*.example.org", f"[{address}]"])
    assert named.allows(parsed, 443)
    assert named.may_lead_to("a.example.org", parsed, 443)
    assert not named.may_lead_to("a.example.org", parsed, 22)


def test_ranges_of_special_addresses_can_be_named() -> None:
    assert Policy.of(["127.0.0.0/8:5432"]).allows(ipaddress.ip_address("127.0.0.1"), 5432)
    assert Policy.of(["a.org"]).may_lead_to("localhost", ipaddress.ip_address("127.0.0.1"), 80)
    assert Policy.of(["a.org"]).may_lead_to("a.org", ipaddress.ip_address("10.0.0.1"), 80)


# --- modes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "table", "expected"),
    [
        (Wanted(), Wanted(), (True, None)),
        (Wanted(), Wanted("none"), (False, None)),
        (Wanted("host"), Wanted("none"), (True, None)),
        (Wanted("none"), Wanted("allow", ("a",)), (False, None)),
        (Wanted(), Wanted("allow", ("a",)), (False, Reach(("a",)))),
        (Wanted("allow", ("b",)), Wanted("allow", ("a",)), (False, Reach(("a", "b")))),
        (Wanted("allow", ("b",)), Wanted("none"), (False, Reach(("b",)))),
        (Wanted("allow"), Wanted(), (False, Reach())),
        (Wanted("none", (), ("80",)), Wanted(), (False, Reach((), ("80",)))),
        (Wanted(None, (), ("80",)), Wanted(), (True, Reach((), ("80",)))),
    ],
)
def test_flags_go_before_the_manifest(flags: Wanted, table: Wanted, expected: tuple[bool, Reach | None]) -> None:
    assert settle(flags, table) == expected


def test_flags() -> None:
    assert parse_flags(None, False, (), ()) == Wanted()
    assert parse_flags(None, True, (), ()) == parse_flags("none", True, (), ()) == Wanted("none")
    assert parse_flags(None, False, ("a.org",), ()) == Wanted("allow", ("a.org",))


@pytest.mark.parametrize(
    ("mode", "no_network", "allow", "publish"),
    [
        ("open", False, (), ()),
        ("host", True, (), ()),
        ("host", False, ("a.org",), ()),
        (None, True, ("a.org",), ()),
        (None, False, ("a b",), ()),
        (None, False, (), ("x",)),
    ],
)
def test_flags_that_contradict_each_other(
    mode: str | None, no_network: bool, allow: tuple[str, ...], publish: tuple[str, ...]
) -> None:
    with pytest.raises(PxError) as caught:
        parse_flags(mode, no_network, allow, publish)
    assert caught.value.code == "PX040"


# --- DNS --------------------------------------------------------------------------------------------------------


def question(name: bytes = b"\x03www\x07example\x03org\x00", kind: int = 1, flags: int = 0x0100) -> bytes:
    return struct.pack("!HHHHHH", 7, flags, 1, 0, 0, 0) + name + struct.pack("!HH", kind, 1)


def test_a_question_and_its_answers() -> None:
    found = dns.parse(question())
    assert found is not None
    assert (found.name, found.kind, found.is_about_a_host) == ("www.example.org", 1, True)
    answer = dns.answer(found, dns.NO_ERROR, bytes([198, 18, 1, 0]))
    assert answer[:8] == struct.pack("!HHHH", 7, 0x8180, 1, 1)
    assert answer.endswith(bytes([198, 18, 1, 0]))
    six = dns.parse(question(kind=28))
    assert six is not None
    assert dns.answer(six, dns.NO_ERROR, bytes(4))[6:8] == b"\0\0"


@pytest.mark.parametrize(
    "packet",
    [
        b"", b"\0" * 11, b"\0" * 12, question()[:-1], question()[:20], question(flags=0x8100), question(flags=0x2800),
        question(b"\xc0\x0c"), question(b"\x3f" + b"a" * 10), question((b"\x3f" + b"a" * 63) * 4 + b"\0"),
        question()[:4] + b"\xff\xff" + question()[6:], question() + b"\0" * 5000,
    ],
)  # fmt: skip
def test_what_is_no_question(packet: bytes) -> None:
    assert dns.parse(packet) is None


@pytest.mark.parametrize("name", [b"\x03\x1b[H\x03org\0", b"\x01 \0", b"\x04\xff\xfe\xfd\xfc\0", b"\0", b"\x01\n\0"])
def test_names_that_cannot_be_shown_are_no_hosts(name: bytes) -> None:
    found = dns.parse(question(name))
    assert found is not None
    assert not found.is_about_a_host


def test_no_packet_breaks_the_parser() -> None:
    chance = random.Random(7)
    for _ in range(20_000):
        packet = bytearray(question())
        for _ in range(chance.randrange(4)):
            packet[chance.randrange(len(packet))] = chance.randrange(256)
        found = dns.parse(bytes(packet[: chance.randrange(len(packet) + 1)]) + chance.randbytes(chance.randrange(8)))
        if found is not None:
            assert len(dns.answer(found, dns.NO_ERROR, bytes(4))) < 600
