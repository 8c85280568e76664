"""The application: every address of the console, the checks before a page, and the answer to an error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from minikafka.base.errors import ConfigError, MinikafkaError
from minikafka.console.guards import Guard, host_name
from minikafka.console.sessions import LoginRefused, Session, Sessions
from minikafka.console.settings import FORM_BYTES_MAX, ConsoleSettings, Login
from minikafka.console.texts import path
from minikafka.console.views import brokers, groups, messages, security, topics
from minikafka.console.visit import Console, NotAllowed, Visit, error_page, login_page, not_found_page

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

View = Callable[[Visit], Response]
Endpoint = Callable[[Request], Awaitable[Response]]

PAGES: Mapping[str, View] = {
    "/": brokers.overview,
    "/topics": topics.topics,
    "/topics/{topic}": topics.partitions,
    "/topics/{topic}/configuration": topics.configuration,
    "/topics/{topic}/groups": topics.topic_groups,
    "/topics/{topic}/messages": messages.messages,
    "/topics/{topic}/search": messages.search_page,
    "/topics/{topic}/tail": messages.tail_page,
    "/topics/{topic}/tail/events": messages.tail_events,
    "/topics/{topic}/export": messages.export,
    "/topics/{topic}/{partition}/{offset}": messages.message,
    "/topics/{topic}/{partition}/{offset}/{part}": messages.message_bytes,
    "/groups": groups.groups,
    "/group": groups.group,
    "/group/reset": groups.reset,
    "/brokers": brokers.brokers,
    "/brokers/{broker}": brokers.broker,
    "/access": security.access_rules,
    "/reassignments": brokers.reassignments,
    "/transactions": security.transactions,
    "/transactions/hanging": security.hanging_transactions,
    "/transaction": security.transaction,
}
"""Address -> what it shows. None of them changes anything.

Ids of groups and transactions may be any text, so they stand in the query: in a path ``/`` and ``..`` would
name another page.
"""
PAGES_FOR_CHANGES: Mapping[str, View] = {"/topics/{topic}/produce": messages.produce_page}
"""Forms that only a console with --allow-changes has."""
CHANGES: Mapping[str, View] = {
    "/topics/{topic}/produce": messages.produce,
    "/group/reset": groups.make_reset,
    "/reassignments/elect": brokers.elect,
}
"""Address -> the change that its form makes."""
FIELDS_MAX = 100
ID_LENGTH_MIN = 32
_FORM = "application/x-www-form-urlencoded"


def make_app(settings: ConsoleSettings) -> Starlette:
    """Return the application of a console. Its sessions are closed when the server ends."""
    console = Console(settings, Sessions(settings))

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        console.slots.closing.set()
        await run_in_threadpool(console.sessions.close)

    app = Starlette(
        routes=list(_routes(console)),
        middleware=[Middleware(Guard, settings=settings)],
        lifespan=lifespan,
        exception_handlers={404: _not_found(console)},
    )
    app.state.console = console
    return app


def _routes(console: Console) -> Iterable[BaseRoute]:
    yield Mount("/static", StaticFiles(directory=Path(__file__).parent / "static"))
    yield Route("/login", _login(console), methods=["GET", "POST"])
    yield Route("/logout", _logout(console), methods=["POST"])
    # The longest first: a name must not hide the words that stand in its place.
    for address in sorted(PAGES, key=lambda text: "{" in text):
        yield Route(address, _endpoint(console, PAGES[address]), methods=["GET"])
    for address, view in PAGES_FOR_CHANGES.items():
        yield Route(address, _endpoint(console, view, changes=True), methods=["GET"])
    for address, view in CHANGES.items():
        yield Route(address, _endpoint(console, view, changes=True), methods=["POST"])


def _not_found(console: Console) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def not_found(request: Request, error: Exception) -> Response:
        return not_found_page(console, request)

    return not_found


def _endpoint(console: Console, view: View, *, changes: bool = False) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        session_id, is_new = _session_id(console, request)
        session = await run_in_threadpool(console.sessions.find, session_id)
        if session is None:
            if request.method == "GET" and not request.url.path.endswith("/events"):
                return _to_login(request)
            return PlainTextResponse("log in first\n", 401)
        visit = Visit(request, console, session)
        try:
            if changes and not console.settings.allow_changes:
                raise NotAllowed("this console is read-only; start it with --allow-changes")
            if request.method == "POST":
                visit.form = await _checked_form(console, request, session_id)
            response = await run_in_threadpool(view, visit)
        except Exception as error:  # noqa: BLE001  # every error becomes a page
            response = error_page(console, request, error, visit)
        if is_new:
            _set_cookie(request, response, session_id)
        return response

    return endpoint


def _session_id(console: Console, request: Request) -> tuple[str, bool]:
    """Return the id in the cookie, or a new one and True."""
    session_id = request.cookies.get(_cookie_of(request), "")
    if len(session_id) >= ID_LENGTH_MIN and session_id.isascii():
        return session_id, False
    return console.sessions.new_id(), True


def _cookie_of(request: Request) -> str:
    # Browsers send a cookie to every port of a host: two consoles must not use one name.
    return f"minikafka_console_{request.url.port or 80}"


def _set_cookie(request: Request, response: Response, session_id: str) -> None:
    response.set_cookie(_cookie_of(request), session_id, httponly=True, samesite="strict")


async def _checked_form(console: Console, request: Request, session_id: str) -> dict[str, str]:
    """Return the fields of a form that a page of this console has sent."""
    origin = request.headers.get("origin")
    if origin is not None and not _is_own_origin(console, origin, request.headers.get("host", "")):
        raise NotAllowed("the form is of another site")
    if request.headers.get("content-type", "").partition(";")[0].strip() != _FORM:
        raise ConfigError("content-type", request.headers.get("content-type"), f"must be {_FORM}")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > FORM_BYTES_MAX:
            raise ConfigError("form", f"over {FORM_BYTES_MAX} bytes", f"must have at most {FORM_BYTES_MAX}")
    try:
        fields = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=FIELDS_MAX)
    except ValueError as error:
        raise ConfigError("form", None, f"cannot be read: {error}") from None
    form = dict(fields)
    if not console.sessions.is_csrf_token(session_id, form.get("csrf", "")):
        raise NotAllowed("the form has expired, or is not of this console; load the page again")
    return form


def _is_own_origin(console: Console, origin: str, host: str) -> bool:
    # A proxy may replace the Host header; then the name that the browser sees is one of --allowed-host.
    netloc = urlsplit(origin).netloc
    return bool(netloc) and (
        netloc == host or host_name(netloc) in map(host_name, console.settings.allowed_hosts)
    )


# --- login --------------------------------------------------------------------------------------------------


def _to_login(request: Request) -> Response:
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(path("login", next="" if wanted == "/" else wanted), 303)


def _safe_next(address: str) -> str:
    """Return a page of this console to go on to: never another site."""
    is_ours = address.startswith("/") and not address.startswith(("//", "/\\")) and address.isprintable()
    return address if is_ours else "/"


def _login(console: Console) -> Endpoint:
    async def login(request: Request) -> Response:
        if console.settings.login is Login.NONE:
            return RedirectResponse("/", 303)
        session_id, is_new = _session_id(console, request)
        target = _safe_next(request.query_params.get("next", "/"))
        csrf = console.sessions.csrf_token(session_id)
        if request.method == "GET":
            response: Response = login_page(console, csrf, target)
        else:
            response = await _log_in(console, request, session_id, target)
        if is_new and request.method == "GET":
            _set_cookie(request, response, session_id)
        return response

    return login


async def _log_in(console: Console, request: Request, session_id: str, target: str) -> Response:
    def attempt(form: Mapping[str, str]) -> Session:
        return console.sessions.log_in(
            token=form.get("token", ""),
            user=form.get("user", ""),
            password=form.get("password", ""),
            address=request.client.host if request.client else "",
        )

    user = ""
    try:
        form = await _checked_form(console, request, session_id)
        user = form.get("user", "")
        session = await run_in_threadpool(attempt, form)
    except (LoginRefused, MinikafkaError) as error:
        return login_page(console, console.sessions.csrf_token(session_id), target, error, user)
    response = RedirectResponse(target, 303)
    _set_cookie(request, response, session.session_id)
    return response


def _logout(console: Console) -> Endpoint:
    async def logout(request: Request) -> Response:
        session_id, _ = _session_id(console, request)
        try:
            await _checked_form(console, request, session_id)
        except MinikafkaError as error:
            return error_page(console, request, error)
        await run_in_threadpool(console.sessions.log_out, session_id)
        response = RedirectResponse("/login", 303)
        response.delete_cookie(_cookie_of(request))
        return response

    return logout
