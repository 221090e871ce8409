"""The signed links of notices: each opens the page of its item, for the person who is signed in.

Opening one answers nothing. The page's forms carry the link, and the first answer that comes with it uses it up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from beforehand.inspect.signing_keys import SigningKeys
from beforehand.journal.port import Post
from beforehand.model.names import plain_name
from beforehand_console.auth.authorize import Principal
from beforehand_console.links import PATH, Link, LinkRefused, checked_unused, keys_of, read_link, use_of
from beforehand_console.web.use_cases import UseCases

Handler = Callable[[Request], Awaitable[Response]]


class LinkRoutes:
    """The links of notices."""

    def __init__(self, desk: UseCases) -> None:
        self._desk: Final = desk

    def routes(self, guarded: Callable[[Handler], Handler]) -> list[Route]:
        """The route of links. `guarded` turns a refusal into a page."""
        return [Route(PATH + "{token}", guarded(self._open), methods=["GET"])]

    async def use(self, token: str, item: str, shown: str, who: Principal) -> Post:
        """The entry that uses this link up, for the commit of an answer. Raises `LinkRefused` if it is not valid."""
        link = self._read(token)
        if (link.item, link.digest) != (item, shown):
            raise LinkRefused("this link is about something else", next_step="open the inbox and look there")
        await self._checked(link, who)
        return use_of(link, by=who.name)

    async def _open(self, request: Request) -> Response:
        token: str = request.path_params["token"]
        link = self._read(token)
        who: Principal = request.scope["principal"]
        found = await self._desk.dossier(who, link.item)
        if found.digest != link.digest or not found.open:
            raise LinkRefused(
                f"{link.item} was answered, or has changed, since this notice was sent",
                next_step="open the inbox and look there",
            )
        await self._checked(link, who)
        where = f"/inbox/{quote(link.item)}?link={quote(token)}"
        return RedirectResponse(where, HTTPStatus.SEE_OTHER)

    async def _checked(self, link: Link, who: Principal) -> None:
        """Refuse a link that was used, or that was sent to the account of another person. Raises `LinkRefused`.

        A notice that went to no account, such as a mailbox of many or a chat, is for every person who may answer.
        """
        recipient = await self._desk.authenticator.accounts.find(plain_name(link.to))
        if recipient is not None and plain_name(recipient.name) != plain_name(who.name):
            raise LinkRefused("this link was sent to another person", next_step="open the inbox and look there")
        await checked_unused(self._desk.reader.journal, link)

    def _read(self, token: str) -> Link:
        return read_link(token, self._keys(), now_ms=self._desk.now_ms)

    def _keys(self) -> SigningKeys:
        """Read the keys each time: they may have been rotated. Raises `LinkRefused` if there are none."""
        found = keys_of(self._desk.reader.identity)
        if found is None:
            raise LinkRefused("no link was ever signed here", next_step="open the inbox and look there")
        return found
