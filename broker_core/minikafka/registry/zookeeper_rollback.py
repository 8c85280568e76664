"""Detects that ZooKeeper was rolled back under a client: restored from an older copy of its data, or emptied.

A client sends the newest change that it has seen (``zxid``) to each server that it connects to. A server that
has not reached that change closes the connection; in an ensemble the client then tries another server. If all
of them were rolled back, every connection is refused forever, without a reason.

So once a connection has been lost for longer than the session lasts, a client with a new session, which any
server accepts, reads the newest change of ZooKeeper. If that is older than the newest one seen before, the
old session is ended (the copy may contain it, with ephemeral znodes that nothing else would delete), and the
seen ``zxid`` is reset: the next connection gets a session expiry, which is handled like any other.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from minikafka.base.errors import MinikafkaError
from minikafka.registry.store import SessionTicket

_log = logging.getLogger(__name__)


class RollbackWatch:
    """Checks for a rollback while a kazoo client has no connection. ``lost`` is for any thread.

    ``connect`` returns a started client with a new session, and raises CoordinationLost; ``disconnect`` ends
    it. ``end_session`` ends another session reliably. ``connected_or_closed`` is set while there is a
    connection, and when the client is closed. ``check_interval_s`` returns the seconds to wait before each
    check.
    """

    def __init__(
        self,
        client: Any,
        hosts: str,
        connected_or_closed: threading.Event,
        *,
        connect: Callable[[], Any],
        disconnect: Callable[[Any], None],
        end_session: Callable[[SessionTicket], object],
        check_interval_s: Callable[[], float],
    ) -> None:
        self._client = client
        self._hosts = hosts
        self._connected_or_closed = connected_or_closed
        self._connect = connect
        self._disconnect = disconnect
        self._end_session = end_session
        self._check_interval_s = check_interval_s
        self._term = 0

    def lost(self) -> None:
        """Handle a lost connection: check for a rollback until there is a connection again."""
        self._term += 1
        threading.Thread(
            target=self._run, args=(self._term,), name="minikafka-zookeeper-lost", daemon=True
        ).start()

    def _run(self, term: int) -> None:
        while not self._connected_or_closed.wait(self._check_interval_s()) and term == self._term:
            try:
                self._check()
            except (MinikafkaError, KazooException, KazooTimeoutError):
                continue  # ZooKeeper is not available
            except Exception:  # noqa: BLE001 - without this thread the client would be refused for ever
                _log.exception(
                    "unexpected error while checking ZooKeeper at %s for a rollback; retrying", self._hosts
                )

    def _check(self) -> None:
        # kazoo has a ``client_id`` only while there is a connection.
        seen, session_id, password = (
            self._client.last_zxid,
            self._client._session_id,
            self._client._session_passwd,
        )
        probe = self._connect()
        try:
            # In an ensemble the server that answers may lag behind the others.
            probe.sync_async("/").get(timeout=self._check_interval_s())
            probe.exists_async("/").get(timeout=self._check_interval_s())
            reached = probe.last_zxid
        finally:
            self._disconnect(probe)
        if self._connected_or_closed.is_set() or reached >= seen:
            return
        _log.error(
            "ZooKeeper at %s was rolled back: its last change is %#x, this client has seen %#x; its data was "
            "restored from an older copy or removed, and later changes are lost. Starting a new session",
            self._hosts,
            reached,
            seen,
        )
        if session_id is not None:
            self._end_session(SessionTicket(session_id, password))
        self._client.last_zxid = 0
