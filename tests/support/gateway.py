"""A stand-in for a managed service: TLS and SASL in front of a broker that has neither.

It serves exactly the APIs and versions of a table, and closes a connection that sends anything else, a
request above its limit, or nothing for too long. Metadata and coordinators have its own address.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from minikafka.base.clock import SystemClock
from minikafka.base.errors import ErrorCode
from minikafka.base.secrets import Password
from minikafka.security.sasl.mechanism import SaslServer
from minikafka.security.sasl.server_states import EnabledMechanism, SaslServerAuthenticator, SaslState
from minikafka.wire.api import ApiKey
from minikafka.wire.api_table import APIS
from minikafka.wire.apis.api_versions import API_VERSIONS
from minikafka.wire.apis.find_coordinator import FIND_COORDINATOR
from minikafka.wire.apis.metadata import METADATA
from minikafka.wire.apis.produce import PRODUCE
from minikafka.wire.frame_parts import Part, join
from minikafka.wire.framing import RequestHeader, encode_frame, response_header, split_response
from tests.support.plain_sockets import exactly, framed
from tests.support.sasl_broker import VersionTable, api_versions, serve_login
from tests.support.tls import HOSTS, authority

HOST = "localhost"

EVENT_HUBS_2019: VersionTable = {
    0: (3, 5),
    1: (4, 6),
    2: (0, 2),
    3: (0, 5),
    8: (0, 3),
    9: (0, 3),
    10: (0, 1),
    11: (0, 2),
    12: (0, 1),
    13: (0, 1),
    14: (0, 1),
    15: (0, 1),
    16: (0, 1),
    17: (0, 0),
    18: (0, 1),
    19: (0, 2),
    20: (0, 2),
    23: (0, 0),
}
"""As clients of that year have logged it."""
EVENT_HUBS_2023: VersionTable = EVENT_HUBS_2019 | {
    0: (3, 7),
    2: (0, 7),
    8: (0, 8),
    9: (0, 8),
    11: (0, 7),
    12: (0, 4),
    13: (0, 4),
    14: (0, 5),
    17: (0, 1),
    32: (0, 2),
    36: (0, 1),
    37: (0, 1),
    42: (0, 0),
}
EVENT_HUBS_REQUEST_BYTES = 1_046_528


class _Refused(Exception):
    """A request that the service does not serve."""


class Gateway:
    """A gateway on this host, from its creation to ``close``."""

    def __init__(
        self,
        broker: str,
        table: VersionTable,
        mechanisms: Mapping[str, Callable[[], SaslServer]],
        *,
        max_request_bytes: int = 104_857_600,
        idle_s: float | None = None,
    ) -> None:
        """broker: the address of the broker behind. mechanisms: the server's side of each, by name."""
        self.table = table
        self.mechanisms = mechanisms
        self.max_request_bytes = max_request_bytes
        self.idle_s = idle_s
        self.requests: list[tuple[int, int]] = []
        """Key and version of each request, those of logins included."""
        self.refused: list[str] = []
        """Why connections were closed, but for idle ones and those of clients."""
        self.idle_closes = 0
        self._host, _, port = broker.rpartition(":")
        self._port = int(port)
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority().issue_cert(*HOSTS, common_name="service").configure_cert(self._tls)
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.bootstrap = f"{HOST}:{self.port}"
        self._start(self._accept)

    def __enter__(self) -> Gateway:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def open_connections(self) -> int:
        """The connections of clients that have done their handshake of TLS."""
        return len(self._sockets) // 2

    def close(self) -> None:
        """Close all connections, and stop."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in list(self._sockets):
            with contextlib.suppress(OSError):
                # That of SSLSocket would have its reader take the bytes that come still encrypted.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
        for thread in list(self._threads):
            thread.join(10)

    def _start(self, target: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=target, args=arguments, name=f"gateway-{self.port}")
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._start(self._serve, sock)

    def _serve(self, sock: socket.socket) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(sock.close)
            try:
                sock.settimeout(10)
                client = stack.enter_context(self._tls.wrap_socket(sock, server_side=True))
                broker = stack.enter_context(socket.create_connection((self._host, self._port)))
                broker.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._sockets |= {client, broker}
                stack.callback(self._sockets.difference_update, {client, broker})
                _Session(self, client, broker).run()
            except _Refused as reason:
                self.refused.append(str(reason))
            except TimeoutError:
                self.idle_closes += 1
            except (OSError, AssertionError):
                pass  # the client, or this gateway, has closed the connection


class _Session:
    """One connection of a client, and its own one with the broker."""

    def __init__(self, gateway: Gateway, client: ssl.SSLSocket, broker: socket.socket) -> None:
        self._gateway = gateway
        self._client = client
        self._broker = broker
        enabled = {name: EnabledMechanism(create) for name, create in gateway.mechanisms.items()}
        self._login = SaslServerAuthenticator(enabled, self._supports)

    def run(self) -> None:
        """Serve requests in turn until one of the three sides ends it."""
        self._client.settimeout(self._gateway.idle_s)
        while True:
            size = struct.unpack(">i", exactly(self._client, 4))[0]
            if size > self._gateway.max_request_bytes:
                raise _Refused(f"a request of {size} bytes")
            frame = memoryview(exactly(self._client, size))
            response = self._respond(frame)
            if response:
                self._client.sendall(join(encode_frame(response)))

    def _supports(self, key: int, version: int) -> bool:
        oldest, newest = self._gateway.table.get(key, (0, -1))
        return oldest <= version <= newest

    def _respond(self, frame: memoryview) -> list[Part]:
        if self._login.state is not SaslState.COMPLETE:
            if not self._login.expects_bare_token:
                header, _ = RequestHeader.decode(frame)
                self._gateway.requests.append((header.api_key, header.api_version))
            parts, failure = serve_login(self._login, self._gateway.table, frame, SystemClock().now_ms())
            if failure is not None:
                if parts:
                    self._client.sendall(join(encode_frame(parts)))
                raise _Refused(failure)
            return parts
        header, body = RequestHeader.decode(frame)
        key, version = header.api_key, header.api_version
        self._gateway.requests.append((key, version))
        if key == API_VERSIONS.key:
            return self._versions(header.correlation_id, version)
        if not self._supports(key, version):
            raise _Refused(f"API {key} in version {version}")
        self._broker.sendall(framed(bytes(frame)))
        if key == PRODUCE.key and PRODUCE.decode_request(version, body).acks == 0:
            return []
        return self._forwarded(key, version)

    def _versions(self, correlation_id: int, version: int) -> list[Part]:
        table = self._gateway.table
        if self._supports(API_VERSIONS.key, version):
            return [response_header(correlation_id), *api_versions(table, version)]
        refused = api_versions(table, 0, ErrorCode.UNSUPPORTED_VERSION)
        return [response_header(correlation_id), *refused]

    def _forwarded(self, key: int, version: int) -> list[Part]:
        response = exactly(self._broker, struct.unpack(">i", exactly(self._broker, 4))[0])
        if key not in (METADATA.key, FIND_COORDINATOR.key):
            return [response]
        is_flexible = APIS[ApiKey(key)].has_tagged_response_header(version)
        correlation_id, body = split_response(response, is_flexible)
        head = response_header(correlation_id, is_flexible)
        if key == METADATA.key:
            known = METADATA.decode_response(version, body)
            brokers = tuple(replace(row, host=HOST, port=self._gateway.port) for row in known.brokers)
            return [head, *METADATA.encode_response(version, replace(known, brokers=brokers))]
        found = FIND_COORDINATOR.decode_response(version, body)
        if not found.error_code and found.host:
            found = replace(found, host=HOST, port=self._gateway.port)
        rows = (
            row if row.error_code else replace(row, host=HOST, port=self._gateway.port)
            for row in found.coordinators
        )
        found = replace(found, coordinators=tuple(rows))
        return [head, *FIND_COORDINATOR.encode_response(version, found)]


@dataclass(frozen=True, slots=True)
class AwsIdentity:
    """The credentials whose signatures a service takes, and the region in which."""

    access_key: str
    secret_key: str
    region: str


class AwsMskIamSaslServer(SaslServer):
    """The service's side of AWS_MSK_IAM: it computes the signature itself (Signature Version 4)."""

    def __init__(self, identity: AwsIdentity, host: str = HOST) -> None:
        super().__init__("AWS_MSK_IAM", "Access denied")
        self._identity = identity
        self._host = host

    def _evaluate(self, response: bytes) -> bytes:
        fields: dict[str, str] = json.loads(response)
        signature = fields.pop("x-amz-signature")
        names = {"version", "host", "user-agent", "action"} | {
            f"x-amz-{name}" for name in ("algorithm", "credential", "date", "signedheaders", "expires")
        }
        if set(fields) != names or fields["version"] != "2020_10_22" or fields["host"] != self._host:
            raise self._failed(f"other fields, or another host, than expected: {sorted(fields)}")
        if not hmac.compare_digest(signature, self._signature(fields)):
            raise self._failed("the signature is wrong")
        self._accept(self._identity.access_key)
        return b'{"version":"2020_10_22","request-id":"1"}'

    def _signature(self, fields: Mapping[str, str]) -> str:
        identity, date = self._identity, fields["x-amz-date"]
        scope = f"{date[:8]}/{identity.region}/kafka-cluster/aws4_request"
        query = {
            "Action": "kafka-cluster:Connect",
            "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
            "X-Amz-Credential": f"{identity.access_key}/{scope}",
            "X-Amz-Date": date,
            "X-Amz-Expires": "900",
            "X-Amz-SignedHeaders": "host",
        }
        text = "&".join(f"{name}={quote(value, safe='-_.~')}" for name, value in sorted(query.items()))
        nothing = hashlib.sha256(b"").hexdigest()
        request = f"GET\n/\n{text}\nhost:{self._host}\n\nhost\n{nothing}"
        digest = hashlib.sha256(request.encode()).hexdigest()
        key = f"AWS4{identity.secret_key}".encode()
        for part in (*scope.split("/"), f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{digest}"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        return key.hex()


def connection_string(user: str) -> Password | None:
    """Return the password of the one user of Event Hubs: the connection string of the guide."""
    text = "Endpoint=sb://namespace.servicebus.windows.net/;SharedAccessKeyName=NAME;SharedAccessKey=KEY="
    return Password(text) if user == "$ConnectionString" else None
