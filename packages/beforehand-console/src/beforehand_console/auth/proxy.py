"""A proxy in front that names people: trusted only where no other program can pose as it."""

from __future__ import annotations

import hmac
import ipaddress
from typing import Final

from beforehand.errors import UsageError

SHOWN_HEADER: Final = "x-beforehand-proxy"
SHORTEST_SECRET: Final = 24
_LOOPBACK: Final = {4: ipaddress.ip_network("127.0.0.0/8"), 6: ipaddress.ip_network("::1")}


class TrustedProxy:
    """Names come in `header`, from these peers only (addresses or networks). Raises `UsageError`.

    With an empty `header` it only gives the address behind it (`X-Forwarded-For`), and people sign in here.

    On loopback every program of this machine is a peer, so there the proxy has to show a `secret` as well, in
    `X-Beforehand-Proxy`. It has to remove both headers from what comes from outside.
    """

    def __init__(self, header: str, peers: tuple[str, ...], secret: str = "") -> None:
        try:
            self._peers: Final = [ipaddress.ip_network(peer) for peer in peers]
        except ValueError as error:
            raise UsageError(f"a trusted proxy has an address: {error}") from error
        if not self._peers or any(net.prefixlen == 0 for net in self._peers):
            raise UsageError(
                "a trusted proxy needs an address of its own, not all addresses", next_step="give its address"
            )
        if secret and len(secret) < SHORTEST_SECRET:
            raise UsageError(f"the proxy's secret has {SHORTEST_SECRET} characters or more")
        if not secret and any(net.overlaps(_LOOPBACK[net.version]) for net in self._peers):
            raise UsageError(
                "on loopback every program can call itself the proxy",
                next_step=f"give it a secret to send as {SHOWN_HEADER}",
            )
        self.header: Final = header.lower()
        self._secret: Final = secret.encode()

    def named(self, peer: str, headers: list[tuple[bytes, bytes]]) -> str | None:
        """The name that the proxy gives. None: this is not the proxy. Empty: it gives no name, or more than one."""
        if not self.header or not self._is_proxy(peer, headers):
            return None
        names = _values(headers, self.header)
        return names[0] if len(names) == 1 else ""

    def address(self, peer: str, headers: list[tuple[bytes, bytes]]) -> str:
        """The address behind the proxy: the last one that it added. From any other peer the header is ignored."""
        if not self._is_proxy(peer, headers):
            return peer
        client = ",".join(_values(headers, "x-forwarded-for")).rpartition(",")[2].strip()
        try:
            return str(ipaddress.ip_address(client))
        except ValueError:
            return peer

    def _is_proxy(self, peer: str, headers: list[tuple[bytes, bytes]]) -> bool:
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        shown = _values(headers, SHOWN_HEADER)
        knows = not self._secret or (len(shown) == 1 and hmac.compare_digest(shown[0].encode(), self._secret))
        return knows and any(address in net for net in self._peers)


def _values(headers: list[tuple[bytes, bytes]], name: str) -> list[str]:
    return [value.decode("latin-1") for key, value in headers if key.decode("latin-1").lower() == name]
