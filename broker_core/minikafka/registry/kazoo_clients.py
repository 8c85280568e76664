"""Clients of kazoo: created with this project's settings, started and stopped, and their errors translated.

kazoo logs every attempt as a warning. Here it has the logger ``minikafka.registry.zookeeper.kazoo``, silent
below ERROR unless its level is set. Bytes are hidden in it: credentials of users, and passwords of sessions,
with which anybody could take one over.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import re
from collections.abc import Iterator
from typing import Any

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.retry import KazooRetry

from minikafka.base.errors import (
    BadVersion,
    CoordinationError,
    CoordinationLost,
    NoAuth,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
)
from minikafka.base.secrets import HIDDEN
from minikafka.registry.zookeeper_security import TlsContext, ZooKeeperSecurity

_BYTES = re.compile(r"""b'(?:[^'\\]|\\.)*'|b"(?:[^"\\]|\\.)*\"""")


def _hide_bytes(record: logging.LogRecord) -> bool:
    """Hide the bytes in a record of kazoo, which logs whole requests and answers. A filter of its logger."""
    record.msg, record.args = _BYTES.sub(f"b'{HIDDEN}'", record.getMessage()), None
    return True


_kazoo_log = logging.getLogger("minikafka.registry.zookeeper.kazoo")
_kazoo_log.addFilter(_hide_bytes)
if _kazoo_log.level == logging.NOTSET:
    _kazoo_log.setLevel(logging.ERROR)


_ERRORS: tuple[tuple[type[Exception] | tuple[type[Exception], ...], type[CoordinationError], str], ...] = (
    (kazoo_errors.NoNodeError, NoNode, "the znode or its parent does not exist"),
    (kazoo_errors.NodeExistsError, NodeExists, "the znode already exists"),
    (kazoo_errors.NotEmptyError, NotEmpty, "the znode has children"),
    (kazoo_errors.BadVersionError, BadVersion, "version conflict"),
    (
        (
            kazoo_errors.ConnectionLoss,
            kazoo_errors.ConnectionClosedError,
            kazoo_errors.OperationTimeoutError,
            kazoo_errors.SessionMovedError,
            KazooTimeoutError,
        ),
        CoordinationLost,
        "lost the connection to ZooKeeper before an answer",
    ),
    (
        kazoo_errors.NoAuthError,
        NoAuth,
        "its ACL does not allow it to this client; check the credentials for ZooKeeper",
    ),
    (
        kazoo_errors.InvalidACLError,
        CoordinationError,
        "an ACL needs a client with credentials or a certificate that ZooKeeper trusts",
    ),
    # Below the others: kazoo derives ConnectionClosedError from it.
    (kazoo_errors.SessionExpiredError, SessionExpired, "the ZooKeeper session has expired"),
)


@contextlib.contextmanager
def translate_errors(doing: str, path: str) -> Iterator[None]:
    """Translate kazoo's errors into CoordinationError and its subclasses."""
    try:
        yield
    except (kazoo_errors.KazooException, KazooTimeoutError) as error:
        for theirs, ours, why in _ERRORS:
            if isinstance(error, theirs):
                raise ours(f"cannot {doing} {path}: {why}") from error
        raise CoordinationError(f"cannot {doing} {path}: {str(error) or type(error).__name__}") from error


class TlsHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Has kazoo connect by TLS, with a context of ours: kazoo's own reads keys from PEM files only.

    And it does not let bytes wait that OpenSSL has decrypted already, which ``select`` does not see.
    """

    def __init__(self, context: TlsContext) -> None:
        super().__init__()
        self._context = context
        self.failure: Exception | None = None
        """The error of the last handshake; None if it succeeded."""

    def create_connection(self, address: Any, hostname: str | None = None, **options: Any) -> Any:
        """Connect to ``address``, and do the handshake within the same time-out."""
        plain = super().create_connection(address, timeout=options.get("timeout"))
        try:
            plain.settimeout(options.get("timeout"))
            connected = self._context.wrap_socket(plain, server_hostname=hostname or address[0])
        except Exception as error:
            self.failure = error
            plain.close()
            raise
        self.failure = None
        return connected

    def select(self, rlist: Any, wlist: Any, xlist: Any, timeout: float | None = None) -> Any:
        """Return as ``select``, at once for sockets with decrypted bytes."""
        ready = [sock for sock in rlist if getattr(sock, "pending", int)() > 0]
        if not ready:
            return super().select(rlist, wlist, xlist, timeout)
        more, writable, failed = super().select(rlist, wlist, xlist, 0)
        return [*ready, *(sock for sock in more if sock not in ready)], writable, failed


def new_client(
    hosts: str,
    session_timeout_ms: int,
    security: ZooKeeperSecurity,
    identity: tuple[int, bytes] | None = None,
) -> Any:
    """Return a client that is not started, of the session ``identity`` or a new one."""
    return KazooClient(
        hosts,
        timeout=session_timeout_ms / 1000,
        client_id=identity,
        handler=None if security.tls is None else TlsHandler(security.tls),
        auth_data=security.auth_data,
        connection_retry=KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_delay=1.0),
        logger=_kazoo_log,
    )


def start(client: Any, hosts: str, timeout_ms: int, waited_ms: int = 0) -> None:
    """Connect the client. Raises CoordinationLost, after stopping it."""
    client.start_async().wait(max(0, timeout_ms - waited_ms) / 1000)
    atexit.unregister(client.handler.stop)  # its threads are daemons: an exit does not wait for a blocked one
    if not client.connected:
        stop(client)
        reason = getattr(client.handler, "failure", None)
        failed = "" if reason is None else f"; the TLS handshake failed: {reason}"
        raise CoordinationLost(
            f"no answer from ZooKeeper at {hosts} within {timeout_ms} ms: check that it is running, "
            f"or correct the address{failed}"
        )


def stop(client: Any) -> None:
    """End the session and the client's threads."""
    client.stop()
    client.close()
