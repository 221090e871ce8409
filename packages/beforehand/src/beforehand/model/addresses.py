"""Which IP addresses are public, by the IANA registries of special-purpose addresses. Pure.

The table is written out: what `ipaddress` calls global changes from one release of Python to the next.
"""

from __future__ import annotations

import ipaddress
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

SPECIAL: Final[tuple[Network, ...]] = tuple(
    ipaddress.ip_network(one)
    for one in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private use
        "100.64.0.0/10",  # shared between a provider and its customers; one cloud has its metadata here
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # host services of one cloud's virtual machines; a public number that leads inside
        "169.254.0.0/16",  # link-local; metadata of most clouds
        "172.16.0.0/12",  # private use
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",  # private use
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, with the broadcast address
        "2001::/23",  # protocol assignments: ORCHID, benchmarks and more
        "2001:db8::/32",  # documentation
        "2620:4f:8000::/48",  # sinks of DNS queries for private addresses
        "3fff::/20",  # documentation
    )
)
GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
"""The rest of IPv6 is loopback, local (fc00::/7, fe80::/10, 64:ff9b:1::/48), multicast or not assigned."""
TEREDO: Final = ipaddress.IPv6Network("2001::/32")
NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
ISATAP: Final = 0x5EFE
"""The end of an address that leads to the IPv4 address behind it, with or without the bit `0x2000000`."""


def is_loopback(host: str) -> bool:
    """True if only this machine can reach a server there. A name other than localhost is not looked up."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_public(address: str) -> bool:
    """True if an IP address is public, judged by those that it embeds, if any. Raises `ValueError` for others."""
    found = ipaddress.ip_address(address.partition("%")[0])
    inside = _inside(found) if isinstance(found, ipaddress.IPv6Address) else ()
    return all(_is_public(one) for one in inside or (found,))


def _inside(found: ipaddress.IPv6Address) -> tuple[ipaddress.IPv4Address, ...]:
    """The IPv4 addresses that an IPv6 address leads to: mapped, 6to4, NAT64; of Teredo the server and the client."""
    if found in TEREDO:
        return found.teredo or ()
    if found in NAT64:
        return (ipaddress.IPv4Address(int(found) & 0xFFFFFFFF),)
    one = found.ipv4_mapped or found.sixtofour
    return () if one is None else (one,)


def _is_public(found: Address) -> bool:
    if found.version == 6 and (found not in GLOBAL_UNICAST or (int(found) >> 32) & 0xFDFFFFFF == ISATAP):
        return False
    return not any(found in network for network in SPECIAL)
