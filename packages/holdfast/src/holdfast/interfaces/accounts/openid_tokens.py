"""Whether an ID token is the provider's word for us, now, about this sign-in (OpenID Connect Core 1.0, 3.1.3.7)."""

from __future__ import annotations

from typing import Any, Final, cast

# Signatures that only the provider can make. Not `none`, and not HMAC: a public key must never be taken for its secret.
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
LEEWAY_S: Final = 60
LONGEST_SUB: Final = 255


def checked_subject(token: object, keys: object, *, issuer: str, client_id: str, nonce: str, now_s: int) -> str | None:
    """The `sub` of a token that is right in everything; None for any other. `keys` is the provider's JWKS document."""
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
    """With several audiences the token says for whom of them it was made; where it says so, it has to be us."""
    audience = claims["aud"]
    shared = isinstance(audience, list) and len(cast("list[object]", audience)) > 1
    return claims.get("azp", None if shared else client_id) == client_id
