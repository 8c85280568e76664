"""A schema registry on this host that follows Confluent's REST interface, in memory."""

from __future__ import annotations

import json
import threading
import uuid
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

import trustme

from tests.support.http_server import LoopbackServer, QuietHandler

Answer = tuple[int, Mapping[str, Any] | list[int]]


class _Handler(QuietHandler):
    """Hands each request to the registry."""

    registry: SchemaRegistry

    def respond(self) -> None:
        status, fields = self.registry.handle(self.command, self.path, self.headers, self.content())
        self.answer(status, json.dumps(fields).encode())


class SchemaRegistry:
    """A registry whose ``url`` is reachable until ``close``. ``refusals`` are given before any answer.

    user: ``name:password``, without which requests are refused. is_compatible: decides on a new version.
    """

    def __init__(self, *, leaf: trustme.LeafCert | None = None, user: str | None = None) -> None:
        self.requests: list[tuple[str, str]] = []
        """Method and path with query of each request."""
        self.refusals: list[Answer] = []
        self.is_compatible: Callable[[str, Mapping[str, Any]], bool] = lambda subject, schema: True
        self._user = user
        self._leaf = leaf
        self._lock = threading.Lock()
        self._schemas: list[dict[str, Any]] = []
        self._subjects: dict[str, list[int]] = {}
        self._server = LoopbackServer(_Handler, {"registry": self}, leaf)
        # Ports are used again, and processes keep what they know of a registry by its address.
        self._path = f"/{uuid.uuid4().hex}"
        self.url = self._server.url + self._path

    def close(self) -> None:
        """Stop answering."""
        self._server.close()

    def restart(self) -> None:
        """Answer again, on the same port and with the same schemas."""
        self._server = LoopbackServer(_Handler, {"registry": self}, self._leaf, self._server.port)

    def add(self, subject: str, text: str, schema_type: str = "AVRO", references: Any = ()) -> int:
        """Register a schema as a request would, and return its id."""
        body = {"schema": text, "schemaType": schema_type, "references": list(references)}
        status, fields = self._post(subject, body, is_made=True)
        assert status == 200, fields
        assert isinstance(fields, dict)
        return int(fields["id"])

    def versions(self, subject: str) -> list[dict[str, Any]]:
        """Return the schemas of a subject, the oldest first."""
        return [self._schemas[number - 1] for number in self._subjects.get(subject, [])]

    def handle(self, method: str, path: str, headers: Mapping[str, str], content: bytes) -> Answer:
        """Return the answer to a request."""
        path = path.removeprefix(self._path)
        with self._lock:
            self.requests.append((method, path))
            if self.refusals:
                return self.refusals.pop(0)
            if self._user is not None:
                expected = f"Basic {b64encode(self._user.encode()).decode()}"
                if headers["Authorization"] != expected:
                    return 401, {"error_code": 401, "message": "Unauthorized"}
            parts = [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]
            if method == "GET" and parts[:2] == ["schemas", "ids"]:
                return self._by_id(int(parts[2]))
            if method == "GET" and parts[0] == "subjects" and parts[2:] == ["versions"]:
                numbers = range(1, len(self._subjects.get(parts[1], [])) + 1)
                return (200, list(numbers)) if numbers else _no_subject(parts[1])
            if method == "GET" and parts[0] == "subjects" and parts[2:3] == ["versions"]:
                return self._by_version(parts[1], parts[3])
            if method == "POST" and parts[0] == "subjects":
                return self._post(parts[1], json.loads(content), is_made=parts[2:] == ["versions"])
            return 404, {}

    def _by_id(self, number: int) -> Answer:
        if not 0 < number <= len(self._schemas):
            return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
        return 200, self._schemas[number - 1]

    def _by_version(self, subject: str, version: str) -> Answer:
        numbers = self._subjects.get(subject)
        if numbers is None:
            return _no_subject(subject)
        index = len(numbers) if version == "latest" else int(version)
        if not 0 < index <= len(numbers):
            return 404, {"error_code": 40402, "message": f"Version {version} not found."}
        number = numbers[index - 1]
        return 200, {"subject": subject, "version": index, "id": number, **self._schemas[number - 1]}

    def _post(self, subject: str, body: Mapping[str, Any], *, is_made: bool) -> Answer:
        schema: dict[str, Any] = {"schema": body["schema"]}
        if body.get("schemaType", "AVRO") != "AVRO":  # as Confluent's registry, which leaves out the default
            schema["schemaType"] = body["schemaType"]
        if body.get("references"):
            schema["references"] = list(body["references"])
        numbers = self._subjects.get(subject, [])
        for number in numbers:
            if self._schemas[number - 1] == schema:
                return 200, {"id": number, "subject": subject, "version": numbers.index(number) + 1, **schema}
        if not is_made:
            code = 40403 if numbers else 40401
            return 404, {"error_code": code, "message": "Schema not found"}
        if not self.is_compatible(subject, schema):
            return 409, {"error_code": 409, "message": "Schema being registered is incompatible"}
        if schema not in self._schemas:
            self._schemas.append(schema)
        number = self._schemas.index(schema) + 1
        self._subjects.setdefault(subject, []).append(number)
        return 200, {"id": number}


def _no_subject(subject: str) -> Answer:
    return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}


@contextmanager
def schema_registry(**arguments: Any) -> Iterator[SchemaRegistry]:
    """Run a registry for the block."""
    registry = SchemaRegistry(**arguments)
    try:
        yield registry
    finally:
        registry.close()
