"""Which hosts and ports a sandbox may reach: ``example.org``, ``*.example.org:443``, ``10.0.0.0/8:5432``."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, NamedTuple

from px.errors import PxError

if TYPE_CHECKING:
    from collections.abc import Iterable

    Address = ipaddress.IPv4Address | ipaddress.IPv6Address
    Network = ipaddress.IPv4Network | ipaddress.IPv6Network

USUAL_PORTS = (80, 443)
"""What a rule without a port means: the web.  Each open port is a listener, so "all of them" cannot be had."""
MOST_PORTS = 64
_LABEL = "[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL})*", re.ASCII)

# What means this machine, its own cable, everybody at once, or a cloud's service that tells a machine about itself,
# credentials included: 169.254.169.254 is link-local, the last ones are those of Azure, Alibaba, Oracle and AWS.
_SPECIAL = tuple(
    map(
        ipaddress.ip_network,
        ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "255.255.255.255")
        + ("::", "::1", "fe80::/10", "ff00::/8")
        + ("168.63.129.16", "100.100.100.200", "192.0.0.192", "fd00:ec2::254"),
    )
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class Rule(NamedTuple):
    """One host, or several by a pattern or a range of addresses, and the ports that are open there."""

    host: str
    ports: tuple[int, ...] = USUAL_PORTS

    @property
    def network(self) -> Network | None:
        """The range of addresses, where the rule is one."""
        try:
            return ipaddress.ip_network(self.host, strict=False)
        except ValueError:
            return None

    def names(self, name: str) -> bool:
        """Whether the rule is for a host of this name; ``*.example.org`` is for those below, not for itself."""
        return name.endswith(self.host[1:]) if self.host.startswith("*.") else name == self.host


def parse_rule(text: str, option: str = "--allow-net") -> Rule:
    """A rule as it is written in a flag or in the manifest."""
    host, ports = _split(text.strip().lower(), option)
    rule = Rule(host.removesuffix("."), ports)
    # What ends in a number is an address or a slip, never a name.
    is_name = _NAME.fullmatch(rule.host) and len(rule.host) <= 253 and not rule.host.rpartition(".")[2].isdigit()
    if rule.network is None and not is_name:
        raise _bad(option, text, "it is neither a host's name nor an address")
    return rule


def _split(text: str, option: str) -> tuple[str, tuple[int, ...]]:
    bracketed = re.fullmatch(r"\[([^\]]*)\](?::(.*))?", text)
    if bracketed:
        return bracketed[1], USUAL_PORTS if bracketed[2] is None else _ports(bracketed[2], text, option)
    host, colon, ports = text.rpartition(":")
    if not colon or ":" in host:  # no port, or an address of version 6 without brackets
        return text, USUAL_PORTS
    return host, _ports(ports, text, option)


def _ports(text: str, whole: str, option: str) -> tuple[int, ...]:
    found = {_port(part) for part in text.split(",")}
    if 0 in found or len(found) > MOST_PORTS:
        raise _bad(option, whole, f"{text!r} is not a port from 1 to 65535, nor several with commas between them")
    return tuple(sorted(found))


def _port(text: str) -> int:
    """The number, or 0 if it is none."""
    return int(text) if re.fullmatch(r"[0-9]{1,5}", text) and int(text) < 65536 else 0


def _bad(option: str, value: str, problem: str, example: str = "--allow-net db.example.org:5432") -> PxError:
    return PxError("PX040", option=option, value=value, problem=problem, example=example)


class Publish(NamedTuple):
    """A port of this machine that leads to a port of the sandbox."""

    host: str
    port: int
    inside: int


def parse_publish(text: str, option: str = "--publish") -> Publish:
    """``[HOST:]PORT[:INSIDE]``; without a host, only this machine itself can connect."""
    found = re.fullmatch(r"(?:(\[[^\]]+\]|[0-9]+\.[0-9.]+|[a-z][a-z0-9.-]*):)?([0-9]+)(?::([0-9]+))?", text.lower())
    port, inside = (_port(found[2]), _port(found[3] or found[2])) if found else (0, 0)
    if found is None or not port or not inside:
        raise _bad(option, text, "it is not of the form [HOST:]PORT[:INSIDE]", "--publish 8000")
    return Publish((found[1] or "127.0.0.1").strip("[]"), port, inside)


class Policy:
    """All rules of a run."""

    def __init__(self, rules: Iterable[Rule]):
        networks = [(rule.network, rule) for rule in rules]
        self._names = [rule for network, rule in networks if network is None]
        self.ranges = [(network, port) for network, rule in networks if network is not None for port in rule.ports]
        """Every range of addresses with a port that is open there."""

    @classmethod
    def of(cls, texts: Iterable[str]) -> Policy:
        return cls(map(parse_rule, texts))

    def ports_of(self, name: str) -> tuple[int, ...]:
        """The ports that are open at a host of this name; none if no rule is for it."""
        return tuple(sorted({port for rule in self._names if rule.names(name) for port in rule.ports}))

    def allows(self, address: Address, port: int) -> bool:
        """Whether a rule names the address, alone or in a range, and the port."""
        found = [network for network, open_port in self.ranges if port == open_port and address in network]
        return any(not is_special(address) or _names_special(network) for network in found)

    def may_lead_to(self, name: str, address: Address, port: int) -> bool:
        """Whether an allowed name may lead to an address.

        A name in somebody else's DNS must not open what only this machine can reach, nor a cloud's metadata service:
        for those a rule must name the address itself.
        """
        if self.allows(address, port) or self.allows(plain(address), port):
            return True
        if name == "localhost" or name.endswith(".localhost"):  # whoever writes such a rule has named this machine
            return plain(address).is_loopback
        return not is_special(address)


def plain(address: Address) -> Address:
    """Version 4 addresses in their own form, however version 6 wraps them."""
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        return address.ipv4_mapped or address.sixtofour or address
    return address


def is_special(address: Address) -> bool:
    """Whether an address is open only to a rule that names it."""
    return any(plain(address) in network for network in _SPECIAL)


def _names_special(network: Network) -> bool:
    """Whether a range is one of special addresses: 0.0.0.0/0 contains some, but does not name them."""
    return network.num_addresses == 1 or any(_is_within(network, special) for special in _SPECIAL)


def _is_within(network: Network, other: Network) -> bool:
    return network.version == other.version and network[0] in other and network[-1] in other
