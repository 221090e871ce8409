"""The files that pages are made of: few, small, read once, named by what is in them, so that browsers may keep them."""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

ROOT: Final = "/static/"
_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class Assets:
    """All files below `static`."""

    def __init__(self) -> None:
        self._by_name: Final[dict[str, str]] = {}
        self._by_address: Final[dict[str, tuple[bytes, str]]] = {}
        for file in (resources.files("holdfast_console.web") / "static").iterdir():
            stem, dot, ending = file.name.rpartition(".")
            body = file.read_bytes()
            address = f"{ROOT}{stem}.{hashlib.sha256(body).hexdigest()[:16]}.{ending}"
            self._by_name[file.name] = address
            self._by_address[address] = body, _TYPES[dot + ending]

    def address(self, name: str) -> str:
        """Where a file is found."""
        return self._by_name[name]

    def routes(self) -> list[Route]:
        """What serves them."""
        return [Route(ROOT + "{name}", self._serve)]

    async def _serve(self, request: Request) -> Response:
        found = self._by_address.get(request.scope["path"])
        if found is None:
            raise HTTPException(404)
        body, kind = found
        return Response(body, headers={"cache-control": "public, max-age=31536000, immutable"}, media_type=kind)
