"""Signing in at an OpenID Connect provider: the authorization code flow with PKCE, state and nonce.

It needs the extra `oidc`.

The provider says who a person is; the account says what they may. An account is found by issuer and `sub`, never by a
name or an e-mail address, which providers let people change and give to others later.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any, Final, cast
from urllib.parse import parse_qs, urlsplit

import msgspec
from msgspec import MsgspecError

from beforehand.engine.engine import Engine
from beforehand.errors import SignInRefused, UsageError
from beforehand.installation import CONSOLE, extra_command
from beforehand.journal.port import Post
from beforehand.model.addresses import is_loopback
from beforehand_console.auth.authenticator import Authenticator, NewSession
from beforehand_console.auth.site import cookie_for, local_path, presented

BACK: Final = "/sign-in/provider/back"
AWAY_MS: Final = 10 * 60_000
USED: Final = "sign-in/"
AWAY: Final = "away"
"""The cookie of a browser that was sent to the provider."""


class Provider(msgspec.Struct, frozen=True):
    """The provider, and our registration there. Raises `UsageError` for an issuer that is not reached over TLS."""

    issuer: str
    client_id: str
    client_secret: str
    scope: str = "openid"

    def __post_init__(self) -> None:
        url = urlsplit(self.issuer)
        if url.scheme != "https" and not (url.scheme == "http" and is_loopback(url.hostname or "")):
            raise UsageError(f"{self.issuer!r} is not an issuer", next_step="give one like https://id.example.com")

    def subject(self, sub: str) -> str:
        """The subject of a person at this provider, as an account stores it."""
        return f"{self.issuer}#{sub}"

    def __repr__(self) -> str:
        return f"Provider({self.issuer!r}, {self.client_id!r})"


class AuthorizationRedirect(msgspec.Struct, frozen=True):
    """The address to which a browser is sent, and the cookie that identifies it on its return."""

    url: str
    cookie: str


class CompletedSignIn(msgspec.Struct, frozen=True):
    """A session that has begun, and the page that was requested before."""

    begun: NewSession
    wanted: str


class _PendingSignIn(msgspec.Struct, frozen=True):
    """The state of a sign-in, for the browser's return. It is signed, and only this browser has it."""

    state: str
    nonce: str
    verifier: str
    wanted: str
    origin: str
    ends_ms: int


class OidcClient:
    """Signing in at one provider. Raises `UsageError` where the extra is not installed."""

    def __init__(self, authenticator: Authenticator, engine: Engine, provider: Provider) -> None:
        try:
            from authlib.common.errors import AuthlibBaseError  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra
            from authlib.integrations.httpx_client import AsyncOAuth2Client  # type: ignore[import-untyped]  # noqa: PLC0415 - as above
            from httpx2 import HTTPError  # noqa: PLC0415 - as above
        except ModuleNotFoundError as error:
            raise UsageError(
                "signing in at a provider needs authlib and httpx2, which are not installed",
                next_step=extra_command("oidc", CONSOLE),
            ) from error
        self._client_class: Final[Any] = AsyncOAuth2Client
        self._failures: Final[tuple[type[Exception], ...]] = (AuthlibBaseError, HTTPError, ValueError, MsgspecError)
        self._authenticator: Final = authenticator
        self._engine: Final = engine
        self._provider: Final = provider
        self._key: Final = hmac.digest(engine.identity.secret, b"beforehand sign-in elsewhere", hashlib.sha256)

    async def leave(self, origin: str, wanted: str) -> AuthorizationRedirect:
        """Send a browser to the provider. Raises `SignInRefused` where the provider cannot be asked."""
        rng = self._engine.environment.rng
        state, nonce, verifier = (rng.token() + rng.token() for _ in range(3))
        ends_ms = self._authenticator.now_ms + AWAY_MS
        away = _PendingSignIn(state, nonce, verifier, local_path(wanted), origin, ends_ms)
        async with self._client(origin) as client:
            known = await self._metadata(client)
            url, _ = client.create_authorization_url(
                _address(known, "authorization_endpoint"), state=state, nonce=nonce, code_verifier=verifier
            )
        return AuthorizationRedirect(url, cookie_for(origin, AWAY, self._sealed(away), AWAY_MS // 1000))

    async def come_back(self, query: str, cookies: str, origin: str, address: str, *, old: str = "") -> CompletedSignIn:
        """Begin a session for the person whom the provider names. Raises `SignInRefused`, whatever went wrong."""
        await self._authenticator.count("", address)
        parameters = {name: values[0] for name, values in parse_qs(query).items() if len(values) == 1}
        away = self._opened(presented(cookies, origin, AWAY))
        if away is None or away.origin != origin or away.ends_ms <= self._authenticator.now_ms:
            raise _refused("it took too long, or began in another browser")
        if not hmac.compare_digest(parameters.get("state", "").encode(), away.state.encode()):
            raise _refused("it began in another browser")
        if parameters.get("iss", self._provider.issuer) != self._provider.issuer or "code" not in parameters:
            raise _refused("the provider refused the sign-in")
        await self._use_up(away.state)
        subject = self._provider.subject(await self._asked(parameters["code"], away))
        return CompletedSignIn(await self._authenticator.vouch(subject, address, old=old), away.wanted)

    # --- asking the provider ---------------------------------------------------------------------------------

    async def _asked(self, code: str, away: _PendingSignIn) -> str:
        """The `sub` for which the provider gave this code."""
        async with self._client(away.origin) as client:
            known = await self._metadata(client)
            try:
                answer = await client.fetch_token(
                    _address(known, "token_endpoint"), grant_type="authorization_code", code=code,
                    code_verifier=away.verifier, redirect_uri=away.origin + BACK,
                )  # fmt: skip
                keys = await client.request("GET", _address(known, "jwks_uri"), withhold_token=True)
                keys.raise_for_status()
                document: object = keys.json()
            except self._failures as error:
                raise _refused("the provider could not be reached") from error
        token = cast("dict[str, object]", dict(answer)).get("id_token")
        sub = checked_subject(
            token, document, issuer=self._provider.issuer, client_id=self._provider.client_id, nonce=away.nonce,
            now_s=self._authenticator.now_ms // 1000,
        )  # fmt: skip
        if sub is None:
            raise _refused("the provider's answer could not be verified")
        return sub

    def _client(self, origin: str) -> Any:
        return self._client_class(
            self._provider.client_id, self._provider.client_secret, scope=self._provider.scope,
            redirect_uri=origin + BACK, code_challenge_method="S256", timeout=10, trust_env=False,
        )  # fmt: skip

    async def _metadata(self, client: Any) -> dict[str, object]:
        """The provider's metadata, if its issuer is the configured one."""
        place = self._provider.issuer.rstrip("/") + "/.well-known/openid-configuration"
        try:
            answer = await client.request("GET", place, withhold_token=True)
            answer.raise_for_status()
            known = msgspec.convert(answer.json(), dict[str, object])
        except self._failures as error:
            raise _refused("the provider could not be reached") from error
        if known.get("issuer") != self._provider.issuer:
            raise _refused("the provider is not the configured one")
        return known

    # --- the state of a browser at the provider --------------------------------------------------------------

    async def _use_up(self, state: str) -> None:
        """Use up a state: it is valid for one return."""
        digest = hashlib.sha256(state.encode()).hexdigest()
        if not (await self._engine.journal.commit(Post(USED, digest, b"{}"))).fresh:
            raise _refused("it was used before")

    def _sealed(self, away: _PendingSignIn) -> str:
        body = urlsafe_b64encode(msgspec.json.encode(away))
        return (body + b"." + hmac.digest(self._key, body, hashlib.sha256).hex().encode()).decode()

    def _opened(self, sealed: str) -> _PendingSignIn | None:
        body, _, seal = sealed.encode(errors="replace").partition(b".")
        if not hmac.compare_digest(seal, hmac.digest(self._key, body, hashlib.sha256).hex().encode()):
            return None
        return msgspec.json.decode(urlsafe_b64decode(body), type=_PendingSignIn)


def _address(known: dict[str, object], name: str) -> str:
    """An address of the provider. Raises `SignInRefused` for one that is not reached over TLS."""
    found = known.get(name)
    url = urlsplit(found if isinstance(found, str) else "")
    if url.scheme == "https" or (url.scheme == "http" and is_loopback(url.hostname or "")):
        return url.geturl()
    raise _refused("the provider could not be reached")


def _refused(why: str) -> SignInRefused:
    return SignInRefused(f"signing in did not succeed: {why}", next_step="begin again")


# Check that an ID token was issued by the provider, for us, now, for this sign-in (OpenID Connect Core 1.0, 3.1.3.7).


# Signatures that only the provider can make. Not `none`, and not HMAC: a public key must never be taken for its secret.
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
LEEWAY_S: Final = 60
LONGEST_SUB: Final = 255


def checked_subject(token: object, keys: object, *, issuer: str, client_id: str, nonce: str, now_s: int) -> str | None:
    """The `sub` of a valid token; None for any other. `keys` is the provider's JWKS document."""
    from joserfc.errors import JoseError  # noqa: PLC0415 - comes with the extra
    from joserfc.jwk import KeySet  # noqa: PLC0415 - as above
    from joserfc.jwt import JWTClaimsRegistry, decode  # noqa: PLC0415 - as above

    if not isinstance(token, str) or not isinstance(keys, dict):
        return None
    wanted = JWTClaimsRegistry(
        now=now_s,
        leeway=LEEWAY_S,
        iss={"essential": True, "value": issuer},
        aud={"essential": True, "value": client_id},
        nonce={"essential": True, "value": nonce},
        sub={"essential": True},
        exp={"essential": True},
        iat={"essential": True},
    )
    try:
        claims = decode(token, KeySet.import_key_set(cast("Any", keys)), algorithms=ALGORITHMS).claims
        wanted.validate(claims)
    except (JoseError, ValueError, TypeError, KeyError):
        return None
    sub = claims["sub"]
    right = isinstance(sub, str) and 0 < len(sub) <= LONGEST_SUB and sub.isascii() and sub.isprintable()
    return sub if right and claims["nonce"] == nonce and _is_for(client_id, claims) else None


def _is_for(client_id: str, claims: dict[str, Any]) -> bool:
    """True if its authorized party is us. It may be missing only if we are the only audience."""
    audience = claims["aud"]
    shared = isinstance(audience, list) and len(cast("list[object]", audience)) > 1
    return claims.get("azp", None if shared else client_id) == client_id
