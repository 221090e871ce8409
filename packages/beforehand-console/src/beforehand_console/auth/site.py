"""Where the page is reached: its addresses, its cookie, and whether other machines may reach it at all."""

from __future__ import annotations

from typing import Final, Literal
from urllib.parse import urlsplit

from beforehand.errors import UsageError
from beforehand.model.addresses import is_loopback
from beforehand_console.auth.sessions import LASTS_MS

_OWN_PORT: Final = {"http": 80, "https": 443}  # browsers leave it out of `Host` and `Origin`


class Site:
    """The addresses under which browsers know it, such as `https://inbox.example.com`. Raises `UsageError`.

    A request for any other name is refused, such as from a page elsewhere that makes its own name lead here (DNS
    rebinding). Sites are not told apart by subdomain: a site that shares ours is a stranger.
    """

    def __init__(self, *origins: str) -> None:
        self._by_host: Final = {_host(origin): origin.lower() for origin in origins}

    @property
    def origins(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(self._by_host.values())

    def origin(self, host: str) -> str | None:
        """The address that a `Host` header names; None where it is not ours."""
        return self._by_host.get(host.lower())


def loopback(port: int, scheme: Literal["http", "https"] = "http") -> Site:
    """The site of a server that only this machine reaches."""
    end = "" if port == _OWN_PORT[scheme] else f":{port}"
    return Site(*(f"{scheme}://{host}{end}" for host in ("127.0.0.1", "localhost", "[::1]")))


def _host(origin: str) -> str:
    """The `Host` that a browser sends for it: with the port, unless it is the scheme's own."""
    try:
        url = urlsplit(origin)
        port = url.port
    except ValueError as error:
        raise UsageError(f"{origin!r} is not an address: {error}") from error
    whole = url.scheme in ("http", "https") and url.hostname and not (url.path or url.query or url.fragment)
    if not whole or url.username is not None or not origin.isascii() or port == _OWN_PORT.get(url.scheme, 0):
        raise UsageError(
            f"{origin!r} is not the address of a site",
            next_step="give one like https://inbox.example.com, without a path",
        )
    return url.netloc.lower()


def checked_bind(host: str, *, accounts: int, encrypted: bool) -> None:
    """Refuse to listen where other machines reach it, unless people sign in, over TLS. Raises `UsageError`.

    `accounts` is how many can sign in. `encrypted`: it has a certificate, or a trusted proxy in front has one.
    """
    if is_loopback(host):
        return
    if not accounts:
        raise UsageError(
            f"no account exists, so the server does not listen on {host or 'every address'}",
            known="without accounts, the inbox serves this machine only",
            next_step="listen on 127.0.0.1, or add an account: beforehand accounts add NAME --role admin",
        )
    if not encrypted:
        raise UsageError(
            f"passwords and sessions would cross the network in clear, so it does not listen on {host}",
            next_step="give a certificate, put a trusted proxy with TLS in front, or listen on 127.0.0.1",
        )


# --- cookies ---------------------------------------------------------------------------------------------------------


def cookie_name(origin: str, use: str = "") -> str:
    """The name of a cookie. With TLS the browser itself ensures that no other host set it (`__Host-`).

    Without, on loopback, it contains the port: cookies are not kept apart by port. `use`: one beside the session.
    """
    own = "__Host-beforehand" if origin.startswith("https://") else f"beforehand-{urlsplit(origin).port or 80}"
    return f"{own}-{use}" if use else own


def session_cookie(origin: str, secret: str) -> str:
    """The `Set-Cookie` header that begins a session."""
    return cookie_for(origin, "", secret, LASTS_MS // 1000)


def ended_cookie(origin: str, use: str = "") -> str:
    """The `Set-Cookie` header that makes a browser forget it."""
    return cookie_for(origin, use, "", 0)


def cookie_for(origin: str, use: str, value: str, max_age_s: int) -> str:
    """A `Set-Cookie` header; no script and no form of another site reaches what it sets."""
    secure = "; Secure" if origin.startswith("https://") else ""
    return f"{cookie_name(origin, use)}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={max_age_s}{secure}"


def presented(cookies: str, origin: str, use: str = "") -> str:
    """The value in a `Cookie` header; empty if the name is missing, or occurs more than once (one was added)."""
    pairs = [pair.strip().partition("=") for pair in cookies.split(";")]
    found = [value for name, _, value in pairs if name == cookie_name(origin, use)]
    return found[0] if len(found) == 1 else ""


def local_path(wanted: str) -> str:
    """The address to open after signing in: a path of this site, or its beginning; never another site."""
    plain = wanted.isascii() and wanted.isprintable() and "\\" not in wanted
    return wanted if plain and wanted.startswith("/") and not wanted.startswith("//") else "/"
