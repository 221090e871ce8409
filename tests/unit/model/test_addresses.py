"""Public addresses, by the tables of IANA: special-purpose IPv4 and IPv6, multicast, and metadata of clouds."""

import ipaddress
import random

import pytest

from beforehand.model.addresses import is_public

# The registries' rows that are not globally reachable, and reserved space that has no row.
NOT_REACHABLE = [
    "0.0.0.0/8", "0.0.0.0/32", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
    "192.0.0.0/24", "192.0.0.0/29", "192.0.0.8/32", "192.0.0.170/32", "192.0.0.171/32", "192.0.2.0/24",
    "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4",
    "240.0.0.0/4", "255.255.255.255/32",
    "::1/128", "::/128", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64", "2001:2::/48", "2001:10::/28",
    "2001:db8::/32", "3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8", "::/96",
    "4000::/3", "e000::/4", "2620:4f:8000::/48", "2606:4700::5efe:0:0/96", "2606:4700::200:5efe:0:0/96",
]  # fmt: skip
METADATA = ["169.254.169.254", "169.254.170.2", "fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "192.0.0.192",
            "168.63.129.16"]  # fmt: skip
REACHABLE = ["8.8.8.8", "1.1.1.1", "11.0.0.1", "172.32.0.1", "100.128.0.1", "192.175.48.1", "2001:4860:4860::8888",
             "2606:4700::1111", "2a00:1450::1", "2606:4700::5eff:808:808"]  # fmt: skip


@pytest.mark.parametrize("row", NOT_REACHABLE)
def test_a_special_purpose_network_is_not_public_from_its_first_to_its_last_address(row: str, seed: int):
    network, chance = ipaddress.ip_network(row), random.Random(seed)
    numbers = [0, network.num_addresses - 1, *(chance.randrange(network.num_addresses) for _ in range(5))]
    assert [str(network[number]) for number in numbers if is_public(str(network[number]))] == []


@pytest.mark.parametrize("address", METADATA)
def test_metadata_of_a_cloud_is_not_public(address: str):
    assert not is_public(address)


@pytest.mark.parametrize("address", REACHABLE)
def test_other_addresses_are_public(address: str):
    assert is_public(address)


def carried(inner: ipaddress.IPv4Address) -> list[str]:
    """IPv6 addresses that lead to this IPv4 address: mapped, NAT64, 6to4, and Teredo (the client's bits are flipped)."""
    number, server = int(inner), int(ipaddress.IPv4Address("8.8.8.8"))
    teredo = (0x20010000 << 96) | (server << 64) | (number ^ 0xFFFFFFFF)
    by_server = (0x20010000 << 96) | (number << 64) | (server ^ 0xFFFFFFFF)
    return [
        f"::ffff:{inner}", f"64:ff9b::{inner}", str(ipaddress.IPv6Address((0x2002 << 112) | (number << 80) | 1)),
        str(ipaddress.IPv6Address(teredo)), str(ipaddress.IPv6Address(by_server)),
    ]  # fmt: skip


@pytest.mark.parametrize("row", [row for row in NOT_REACHABLE if "." in row])
def test_an_address_that_carries_a_special_one_is_not_public(row: str):
    network = ipaddress.IPv4Network(row)
    found = [one for inner in (network[0], network[-1]) for one in carried(inner) if is_public(one)]
    assert found == []


def test_an_address_that_carries_a_public_one_is_public():
    assert all(is_public(one) for one in carried(ipaddress.IPv4Address("8.8.8.8")))
