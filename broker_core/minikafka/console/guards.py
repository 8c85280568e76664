"""The guard before every page: it checks the Host header, and adds headers that restrict the browser.

A page of another site can reach a console on loopback through a name that it points there (DNS rebinding).
The Host header still has that name, so only addresses and names of this console pass.
"""

from __future__ import annotations

from ipaddress import ip_address
from platform import node

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from minikafka.console.settings import ConsoleSettings

SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
NO_STORE = "no-store"


class Guard:
    """Refuses other hosts, and adds the headers to every response."""

    def __init__(self, app: ASGIApp, settings: ConsoleSettings) -> None:
        self._app = app
        names = {"localhost", node(), settings.host, *settings.allowed_hosts}
        self._names = set(map(host_name, names)) - {""}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name for name, _ in message["headers"]}
                added = {**SECURITY_HEADERS, "cache-control": NO_STORE}
                message["headers"] = [
                    *message["headers"],
                    *(
                        (name.encode(), value.encode())
                        for name, value in added.items()
                        if name.encode() not in given
                    ),
                ]
            await send(message)

        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        if not self.allows(headers.get(b"host", "")):
            text = (
                "this console does not have this name; start it with --allowed-host NAME to use another one"
            )
            await PlainTextResponse(f"{text}\n", 421)(scope, receive, guarded)
        elif headers.get(b"sec-fetch-site") == "cross-site" and headers.get(b"sec-fetch-mode") != "navigate":
            # An image or a script in a page of another site could start searches.
            await PlainTextResponse("requests of other sites are refused\n", 403)(scope, receive, guarded)
        else:
            await self._app(scope, receive, guarded)

    def allows(self, host: str) -> bool:
        """Return True for the Host header of a request to this console. An address needs no DNS."""
        name = host_name(host)
        if name in self._names:
            return True
        try:
            ip_address(name.strip("[]"))
        except ValueError:
            return False
        return True


def host_name(host: str) -> str:
    """Return the name or address in a Host header, without the port."""
    head, colon, port = host.strip().lower().rpartition(":")
    return (head if colon and port.isdigit() else host.strip().lower()).rstrip(".")
