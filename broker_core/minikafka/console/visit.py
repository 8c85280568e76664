"""One request to a page: its parameters and form, the access of its user, and the page that answers it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from minikafka.base.errors import (
    BrokerError,
    ConfigError,
    ErrorCode,
    MinikafkaError,
    NetworkError,
    NoSuchBroker,
)
from minikafka.base.ids import check_topic_name, host_port
from minikafka.base.secrets import redact_text
from minikafka.base.text import counted, first_of
from minikafka.base.times import utc_text
from minikafka.clients.admin.topics import unknown_topic_message
from minikafka.clients.fetch.isolation_level import IsolationLevel
from minikafka.clients.network.metadata import ClusterMetadata, TopicMetadata
from minikafka.console import texts
from minikafka.console.settings import PAGE_TIMEOUT_MS, ConsoleSettings
from minikafka.console.streams import Slot, Stream, StreamSlots, TooManyStreams

if TYPE_CHECKING:
    from minikafka.console.access import Access
    from minikafka.console.schemas import Schemas
    from minikafka.console.sessions import Session, Sessions

T = TypeVar("T")
_log = logging.getLogger(__name__)

_NOT_FOUND = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.OFFSET_OUT_OF_RANGE,
    }
)
_INVALID = frozenset({ErrorCode.INVALID_TOPIC, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_GROUP_ID})
_DENIED = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


class NotAllowed(MinikafkaError):
    """A request that this console does not serve: a forged form, or a change in a read-only console."""


@dataclass(slots=True)
class Console:
    """The settings, sessions and streams that all requests share."""

    settings: ConsoleSettings
    sessions: Sessions
    slots: StreamSlots = field(default_factory=StreamSlots)


@dataclass(slots=True)
class Visit:
    """One request of a session."""

    request: Request
    console: Console
    session: Session
    form: Mapping[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """Parts of the page that could not be had, and why."""
    _metadata: ClusterMetadata | None = None

    @property
    def access(self) -> Access:
        """The access of the user."""
        return self.session.access

    @property
    def metadata(self) -> ClusterMetadata:
        """Brokers and topics, as a broker knows them now: one look for the whole page."""
        if self._metadata is None:
            self._metadata = self.access.cluster.metadata(None, timeout_ms=PAGE_TIMEOUT_MS)
        return self._metadata

    def topic(self, name: str) -> TopicMetadata:
        """Return the metadata of a topic. Raises BrokerError, with similar names, if it does not exist."""
        check_topic_name(name)
        topic = self.metadata.topics.get(name)
        if topic is None:
            text = unknown_topic_message(name, self.metadata.topics, may_be_hidden=True)
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        return topic

    @property
    def allow_changes(self) -> bool:
        """True unless the console is read-only."""
        return self.console.settings.allow_changes

    @property
    def schemas(self) -> Schemas | None:
        """The schemas of keys and values; None without a registry."""
        return self.console.settings.schemas

    def part(self, name: str) -> str:
        """Return a part of the path."""
        value: str = self.request.path_params[name]
        return value

    def param(self, name: str, default: str = "") -> str:
        """Return a parameter of the address, without blanks around it."""
        return self.request.query_params.get(name, default).strip()

    def any_text(self, name: str) -> str:
        """Return a parameter of the address as it is: an id may be empty, or begin with a blank."""
        return self.request.query_params.get(name, "")

    def number(self, name: str, default: int, least: int = 0, most: int = 2**31 - 1) -> int:
        """Return a number of the address. Raises ConfigError."""
        text = self.param(name)
        return texts.parse_number(name, text, least, most) if text else default

    @property
    def isolation(self) -> IsolationLevel:
        """The isolation level of the address; committed messages only, if it says so."""
        committed = self.param("isolation") == "read_committed"
        return IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED

    def attempt(self, what: str, call: Callable[[], T]) -> T | None:
        """Return the result of ``call``, or None after a note about ``what`` is missing."""
        try:
            return call()
        except MinikafkaError as error:
            self.note_errors(what, [error])
            return None

    def note_errors(self, what: str, errors: Iterable[MinikafkaError]) -> None:
        """Add a note about ``what`` is missing, for each different error."""
        for text in dict.fromkeys(error_text(error) for error in errors):
            self.notes.append(f"{what}: {text}")

    def page(self, template: str, status: int = 200, /, **values: object) -> Response:
        """Return a page."""
        return HTMLResponse(_template(template).render(self._values(values)), status)

    def streamed(
        self,
        make_parts: Callable[[Slot], Iterator[str]],
        media_type: str,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Return a response in parts, as they are made. Raises TooManyStreams."""
        client = self.request.client
        visitor = self.session.session_id, client.host if client else ""
        return Stream(self.console.slots, visitor, make_parts, media_type, headers)

    def stream(self, template: str, **values: object) -> Iterator[str]:
        """Yield a page in parts; a part ends where the template waits for a value."""
        return _template(template).generate(self._values(values))

    def _values(self, values: Mapping[str, object]) -> dict[str, object]:
        return {
            "csrf": self.console.sessions.csrf_token(self.session.session_id),
            "notes": self.notes,
            "allow_changes": self.allow_changes,
            "schemas": self.schemas is not None,
            "user": self.session.user,
            "login": self.console.settings.login.value,
            "bootstrap": first_of(self.access.cluster.bootstrap_text.split(","), 1),
            "here": self.request.url.path,
            **values,
        }


def error_page(console: Console, request: Request, error: Exception, visit: Visit | None = None) -> Response:
    """Return the page of an error, with a status that says whose fault it is.

    visit: that of the user, whose page has the links to all others.
    """
    status, title = status_of(error)
    if status == 500:
        _log.error("unexpected error while serving %s", request.url.path, exc_info=error)
    text = error_text(error) if isinstance(error, MinikafkaError) else "see the log of the console"
    if visit is not None:
        visit.notes.clear()
        return visit.page("error.html", status, title=title, text=text)
    return _bare_page(console, "error.html", status, title=title, text=text, here=request.url.path)


def not_found_page(console: Console, request: Request) -> Response:
    """Return the page for an address that the console does not have."""
    text = f"this console has no page {request.url.path}"
    return _bare_page(console, "error.html", 404, title="Not found", text=text, here=request.url.path)


def login_page(
    console: Console, csrf: str, target: str, error: MinikafkaError | None = None, user: str = ""
) -> Response:
    """Return the page on which people log in, and go on to ``target``."""
    problem = "" if error is None else error_text(error)
    return _bare_page(
        console,
        "login.html",
        200 if error is None else 403,
        csrf=csrf,
        action=texts.path("login", next=target),
        problem=problem,
        name=user,
        kind=console.settings.login.value,
        here="/login",
    )


def _bare_page(console: Console, template: str, status: int, **values: object) -> Response:
    """Return a page without the session of a user."""
    common = {"notes": [], "allow_changes": False, "user": None, "login": "none", "bootstrap": "", "csrf": ""}
    return HTMLResponse(_template(template).render(common | values), status)


def status_of(error: Exception) -> tuple[int, str]:
    """Return the HTTP status of an error, and the title of its page."""
    if isinstance(error, NotAllowed):
        return 403, "Not allowed"
    if isinstance(error, TooManyStreams):
        return 503, "Too many streams"
    if isinstance(error, ConfigError):
        return 400, "Invalid value"
    if isinstance(error, BrokerError):
        by_code = (
            (_NOT_FOUND, 404, "Not found"),
            (_DENIED, 403, "Not authorized"),
            (_INVALID, 400, "Invalid value"),
            ({ErrorCode.UNSUPPORTED_VERSION}, 501, "These brokers are too old for this page"),
        )
        return next(
            ((status, title) for codes, status, title in by_code if error.code in codes),
            (502, "The cluster refused the request"),
        )
    if isinstance(error, NoSuchBroker):
        return 404, "Not found"
    if isinstance(error, NetworkError):
        return 503, "The cluster cannot be reached"
    return (502, "The request failed") if isinstance(error, MinikafkaError) else (500, "Unexpected error")


def error_text(error: MinikafkaError) -> str:
    """Return the message of an error without secrets."""
    return str(error) if isinstance(error, ConfigError) else redact_text(" ".join(str(error).split()))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("minikafka.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": texts.number,
        "size": texts.size,
        "utc_parts": lambda value: Markup("<wbr>").join((utc_text(value) or "–").replace("T", "T ").split()),
        "utc": lambda value: utc_text(value) or "–",
        "age": texts.age,
    }
    environment.globals |= {"path": texts.path, "counted": counted, "host_port": host_port}
    return environment


@cache
def _template(name: str) -> Template:
    return _environment().get_template(name)
