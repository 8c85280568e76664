"""The client of a schema registry: Confluent's REST interface, with caches.

    GET  /schemas/ids/ID                        {"schema": …, "schemaType": "AVRO", "references": […]}
    GET  /subjects/SUBJECT/versions/latest      the same with {"id": …}; also of a version's number
    GET  /subjects/SUBJECT/versions             the numbers of its versions: [1, 2, …]
    POST /subjects/SUBJECT/versions             {"schema": …, "schemaType": …, "references": …} -> {"id": …}
    POST /subjects/SUBJECT                      looks up the same -> {"id": …}

A schema never changes under its id, so it is asked for once in the life of a client. An id that the registry
does not have is not asked for again for some seconds, and the newest version of a subject for a minute; it is
kept for longer while the registry is away. A registry that cannot be reached, or is overloaded, is
asked again at each of its addresses with growing pauses; the address that answered last is the first.

Every request has a connection of its own: there are few, and minutes between them. No error has a secret.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn
from urllib.parse import quote

from minikafka.base.clock import Clock, SystemClock
from minikafka.base.errors import ConfigError, ConfigErrors, MinikafkaError, NetworkError
from minikafka.base.printable import printable
from minikafka.base.text import shorten
from minikafka.clients.schema_registry.config import RegistryAddress, SchemaRegistryConfig, in_namespace
from minikafka.net.http import fetch
from minikafka.security.sasl.oidc import HttpRequest, HttpResponse

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
NOT_FOUND_MS = 10_000
"""How long an id that the registry does not have is not asked for again."""
LATEST_MS = 60_000
"""How long the newest version of a subject is not asked for again."""
SERIALIZED = "serialized"
"""The form of a protobuf schema that is a descriptor in base64. Registries without it answer with text."""

_MAX_REFERENCES = 1_000
_MAX_DEPTH = 100
"""Of references that have references."""
_MAX_MISSING = 1_000
_ID_END = 1 << 31
_REPEATED = frozenset({408, 429, *range(500, 600)})
_SERVER = "the schema registry"
_Path = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """A schema that another one refers to by ``name``, as a version of a subject.

    text: its own text; empty where it is not known, as in a schema that is to be registered.
    """

    name: str
    subject: str
    version: int
    text: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema of the type AVRO, JSON or PROTOBUF, as it is registered."""

    type: str
    text: str
    references: tuple[SchemaReference, ...] = ()


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of the registry.

    references: those of the schema and of its references, with their texts, each once and before whatever
    refers to it.
    """

    id: int
    type: str
    text: str
    references: tuple[SchemaReference, ...] = ()


class SchemaRegistryError(MinikafkaError):
    """The registry refused a request. ``status`` is that of HTTP, ``code`` the registry's own number."""

    def __init__(self, text: str, status: int = 0, code: int = 0) -> None:
        super().__init__(text, status, code)
        self.text = text
        self.status = status
        self.code = code

    def __str__(self) -> str:
        return self.text


class SchemaNotFound(SchemaRegistryError):
    """The registry has no such schema, subject or version."""


class SchemaRegistryClient:
    """One registry. Thread-safe: one request is sent at a time, and whoever else asks for the same waits for
    its answer. What is known already is returned meanwhile.
    """

    def __init__(
        self,
        config: SchemaRegistryConfig,
        clock: Clock | None = None,
        *,
        send: Callable[[HttpRequest], HttpResponse] = fetch,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._send = send
        self._sleep = sleep
        self._lock = threading.Lock()
        """Held while a request is under way, and where a field below changes; one look-up in them needs none.
        Whoever has waited for it looks again: the answer may be there.
        """
        self._first = 0
        self._schemas: dict[int, RegisteredSchema] = {}
        self._missing: dict[int, tuple[int, SchemaNotFound]] = {}
        """Id -> when it was asked for, and the answer."""
        self._versions: dict[tuple[str, int], RegisteredSchema] = {}
        self._latest: dict[str, tuple[int, RegisteredSchema]] = {}
        """Subject -> when it was asked for, and its newest version."""
        self._numbers: dict[tuple[str, str, Schema, bool], Mapping[str, Any]] = {}
        """The answers for schemas that were registered or looked up."""

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Return the schema of this id. Raises SchemaNotFound, SchemaRegistryError, or NetworkError."""
        found = self._known_schema(schema_id)
        if found is not None:
            return found
        with self._lock:
            found = self._known_schema(schema_id)
            if found is not None:
                return found
            try:
                answer = self._ask(f"/schemas/ids/{schema_id}", f"schema {schema_id}", form=SERIALIZED)
            except SchemaNotFound as error:
                if len(self._missing) >= _MAX_MISSING:
                    self._missing.clear()
                self._missing[schema_id] = self._clock.monotonic_ms(), error
                raise
            found = self._registered(schema_id, answer, f"schema {schema_id}")
            self._schemas[schema_id] = found
            return found

    def _known_schema(self, schema_id: int) -> RegisteredSchema | None:
        """Return a schema that was fetched. Raise SchemaNotFound if there was none a short time ago."""
        found = self._schemas.get(schema_id)
        if found is None:
            asked = self._missing.get(schema_id)
            if asked is not None and self._clock.monotonic_ms() - asked[0] < NOT_FOUND_MS:
                raise SchemaNotFound(*asked[1].args)
        return found

    def latest(self, subject: str, *, fresh: bool = False) -> RegisteredSchema:
        """Return the newest version of a subject: as it was within the last minute, unless it must be
        ``fresh``. An older one is good enough while the registry is away. Raises as ``schema``.
        """
        known = None if fresh else self._latest.get(subject)
        if known is not None and self._clock.monotonic_ms() - known[0] < LATEST_MS:
            return known[1]
        with self._lock:
            known = None if fresh else self._latest.get(subject)
            now_ms = self._clock.monotonic_ms()
            if known is not None and now_ms - known[0] < LATEST_MS:
                return known[1]
            try:
                _, found = self._version(subject, "latest")
            except NetworkError:
                if known is None:
                    raise
                now_ms, found = self._clock.monotonic_ms(), known[1]
            self._latest[subject] = now_ms, found
            return found

    def versions(self, subject: str) -> Iterator[tuple[int, RegisteredSchema]]:
        """Yield the versions of a subject with their numbers, the newest first; each is asked for when its
        turn comes. Raises as ``schema``.
        """
        with self._lock:
            newest = self._version(subject, "latest")
        yield newest
        what = f"subject {subject!r}: listing its versions"
        with self._lock:
            numbers = self._ask(f"/subjects/{quote(subject, safe='')}/versions", what, answer_type=list)
        if not all(map(_is_number, numbers)):
            self._unexpected(what, "is no list of numbers")
        for number in sorted(numbers, reverse=True):
            if number < newest[0]:
                with self._lock:
                    found = self._numbered(subject, number)
                yield number, found

    def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> int:
        """Return the id of a schema as a version of ``subject``, which is made if there is none.

        Raises SchemaRegistryError if it is invalid, or not compatible with the versions before.
        """
        return self._post("registering", subject, "/versions", schema, normalize, "id")

    def look_up(self, subject: str, schema: Schema, *, normalize: bool = False) -> int:
        """Return the id of a schema that is a version of ``subject``. Raises SchemaNotFound if it is none."""
        return self._post("looking up", subject, "", schema, normalize, "id")

    def version(self, subject: str, schema: Schema, *, normalize: bool = False) -> int:
        """Return the number of the version, as ``look_up`` its id."""
        return self._post("looking up", subject, "", schema, normalize, "version")

    def _post(self, verb: str, subject: str, path: str, schema: Schema, normalize: bool, wanted: str) -> int:
        """Return the number ``wanted`` that the registry has for a schema."""
        key = path, subject, schema, normalize
        known: int | None = self._numbers.get(key, {}).get(wanted)
        if known is not None:
            return known
        with self._lock:
            if wanted not in self._numbers.get(key, {}):
                body: dict[str, object] = {"schema": schema.text}
                if schema.type != AVRO:  # registries before 5.5 know nothing else
                    body["schemaType"] = schema.type
                if schema.references:
                    body["references"] = [
                        {"name": found.name, "subject": found.subject, "version": found.version}
                        for found in schema.references
                    ]
                what = f"subject {subject!r}: {verb} its schema"
                target = f"/subjects/{quote(subject, safe='')}{path}" + (
                    "?normalize=true" if normalize else ""
                )
                answer = self._ask(target, what, body)
                if not _is_number(answer.get(wanted)):
                    self._unexpected(what, f"has no {wanted}")
                self._numbers[key] = answer
            number: int = self._numbers[key][wanted]
            return number

    def _version(self, subject: str, version: int | str, path: _Path = ()) -> tuple[int, RegisteredSchema]:
        """Return the number of a version, and its schema."""
        what = f"subject {subject!r}, version {version}"
        answer = self._ask(f"/subjects/{quote(subject, safe='')}/versions/{version}", what, form=SERIALIZED)
        for wanted in ("id", "version"):
            if not _is_number(answer.get(wanted)):
                self._unexpected(what, f"has no {wanted}")
        return answer["version"], self._registered(answer["id"], answer, what, path)

    def _numbered(self, subject: str, number: int, path: _Path = ()) -> RegisteredSchema:
        """Return a version by its number, under which it never changes."""
        key = subject, number
        if key not in self._versions:
            _, self._versions[key] = self._version(subject, number, (*path, key))
        return self._versions[key]

    def _registered(
        self, schema_id: int, answer: Mapping[str, Any], what: str, path: _Path = ()
    ) -> RegisteredSchema:
        """Return the schema in an answer. ``path``: the versions through whose references it was reached."""
        text = answer.get("schema")
        if not isinstance(text, str):
            self._unexpected(what, "has no schema")
        found: dict[str, SchemaReference] = {}
        for reference in self._references(answer, what):
            key = reference.subject, reference.version
            if key in path:
                self._unexpected(what, f"has the reference {reference.name!r}, which leads back to itself")
            if len(path) > _MAX_DEPTH:
                self._unexpected(what, f"is {_MAX_DEPTH} references away from the schema that was asked for")
            referred = self._numbered(*key, path)
            for nested in referred.references:
                found.setdefault(nested.name, nested)
            found.setdefault(reference.name, replace(reference, text=referred.text))
            if len(found) > _MAX_REFERENCES:
                self._unexpected(what, f"has more than {_MAX_REFERENCES} references")
        return RegisteredSchema(schema_id, str(answer.get("schemaType") or AVRO), text, tuple(found.values()))

    def _references(self, answer: Mapping[str, Any], what: str) -> Iterable[SchemaReference]:
        try:
            for entry in answer.get("references") or ():
                yield SchemaReference(str(entry["name"]), str(entry["subject"]), int(entry["version"]))
        except (TypeError, LookupError, ValueError):
            self._unexpected(what, "has references without name, subject and version")

    def _ask(
        self,
        path: str,
        what: str,
        body: Mapping[str, object] | None = None,
        form: str = "",
        answer_type: type = dict,
    ) -> Any:
        """Return the registry's answer, an ``answer_type``, from the first address that gives one."""
        target = path + (f"?format={form}" if form else "")
        addresses, pause_ms = self._config.addresses, self._config.retry_wait_ms
        for attempt in range(self._config.max_retries + 1):
            problem: MinikafkaError | None = None
            for number in range(len(addresses)):
                place = (self._first + number) % len(addresses)
                try:
                    answer = self._ask_once(addresses[place], target, what, body, answer_type)
                except NetworkError as error:
                    problem = problem or error
                    continue
                self._first = place
                return answer
            if attempt == self._config.max_retries:
                assert problem is not None, "there is an address"
                raise problem
            self._sleep(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, self._config.retry_max_wait_ms)
        raise AssertionError("every attempt returns or raises")

    def _ask_once(
        self,
        address: RegistryAddress,
        target: str,
        what: str,
        body: Mapping[str, object] | None,
        answer_type: type,
    ) -> Any:
        """Return the answer of one address. Raises NetworkError if another attempt may succeed."""
        config = self._config
        headers = {"Accept": f"{CONTENT_TYPE}, application/json", "User-Agent": "minikafka"}
        if body is not None:
            headers["Content-Type"] = CONTENT_TYPE
        if address.authorization is not None:
            headers["Authorization"] = address.authorization.value
        request = HttpRequest(
            address.url + target,
            headers,
            None if body is None else json.dumps(body).encode(),
            config.connect_timeout_ms,
            config.read_timeout_ms,
            allow_http=True,
            ssl_options=dict(config.ssl),
            setting=config.url_name,
            server=_SERVER,
            ssl_advice=f"its settings of TLS begin with {config.namespace}ssl.",
        )
        try:
            response = self._send(request)
        except ConfigError as error:
            raise ConfigErrors(list(in_namespace(error.faults, config.namespace))) from None
        if response.status not in (200, 201):
            raise self._refusal(request, response, what)
        answer = _json(response.body, answer_type)
        if answer is None:
            wanted = "object" if answer_type is dict else "list"
            raise SchemaRegistryError(
                f"{what}: {request.place} answered with something that is no JSON {wanted}; check "
                f"{config.url_name}, which must lead to a schema registry with Confluent's interface",
                response.status,
            )
        return answer

    def _refusal(
        self, request: HttpRequest, response: HttpResponse, what: str
    ) -> SchemaRegistryError | NetworkError:
        status, fields = response.status, _json(response.body, dict) or {}
        code, message = fields.get("error_code"), fields.get("message")
        words = printable(shorten(message)) if isinstance(message, str) else ""
        authorization = request.headers.get("Authorization", "").rpartition(" ")[2]
        if authorization and authorization in words:
            words = ""
        code = code if isinstance(code, int) else 0
        said = ", ".join(filter(None, (f"status {status}", f"error_code {code}" if code else "", words)))
        if status in _REPEATED:
            return NetworkError(
                f"{what}: {_SERVER} failed ({said})", request.place, "it may be overloaded: try again later"
            )
        failed = SchemaNotFound if status == 404 and code else SchemaRegistryError
        return failed(
            f"{what}: refused by {request.place} ({said}); {self._advice(status, code)}", status, code
        )

    def _advice(self, status: int, code: int) -> str:
        namespace, url = self._config.namespace, self._config.url_name
        if status in (401, 403):
            return f"check {namespace}basic.auth.user.info, or the user in {url}, and its rights"
        if status == 404 and not code:
            return f"check the path in {url}"
        if status == 404:
            return f"check that {url} is the registry of the producers, and the subject's name"
        if status == 409:
            return "the schema is not compatible with the subject's versions: change it, or the compatibility"
        if status in range(300, 400):
            return f"set {url} to the address that it redirects to"
        return "correct the schema, or the subject's settings in the registry"

    def _unexpected(self, what: str, problem: str) -> NoReturn:
        raise SchemaRegistryError(f"{what}: the schema registry's answer {problem}")


def _json(body: bytes, wanted: type) -> Any:
    """Return an answer's JSON; None if it is none, or of another type than ``wanted``."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, wanted) else None


def _is_number(value: object) -> bool:
    """Return True for what can be the id of a schema, or the number of a version: an int32."""
    return type(value) is int and 0 <= value < _ID_END
