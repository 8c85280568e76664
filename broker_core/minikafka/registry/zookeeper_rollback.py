"""A ZooKeeper that went back under a client: restored from an older copy of its data, or emptied.

A client tells each server that it connects to the newest change that it has seen (``zxid``). A server that
has not come so far closes the connection: in an ensemble another one is asked then. Where all of them went
back, every connection is refused, for ever, and nobody says why.

So once a connection has been lost for longer than the session lasts, a client of a new session, which any
server takes, looks how far ZooKeeper has come. Where that is less than was seen before, the old session is
ended (the copy may know it, with ephemeral znodes that nobody would remove), and what was seen is forgotten:
the next connection is told that the session has expired, and all goes on as after any other expiry.
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
    """Looks after one client of kazoo while it has no connection. ``lost`` is for any thread.

    ``connect`` gives a started client of a new session, and raises CoordinationLost; ``disconnect`` ends it.
    ``end_session`` ends another one, for certain. ``over`` is set while there is a connection, and when the
    client is closed. ``patience_s`` says how long to wait before each look.
    """

    def __init__(
        self,
        client: Any,
        hosts: str,
        over: threading.Event,
        *,
        connect: Callable[[], Any],
        disconnect: Callable[[Any], None],
        end_session: Callable[[SessionTicket], object],
        patience_s: Callable[[], float],
    ) -> None:
        self._client = client
        self._hosts = hosts
        self._over = over
        self._connect = connect
        self._disconnect = disconnect
        self._end_session = end_session
        self._patience_s = patience_s
        self._term = 0

    def lost(self) -> None:
        """The connection is lost: look after it until there is one again."""
        self._term += 1
        threading.Thread(
            target=self._run, args=(self._term,), name="minikafka-zookeeper-lost", daemon=True
        ).start()

    def _run(self, term: int) -> None:
        while not self._over.wait(self._patience_s()) and term == self._term:
            try:
                self._look()
            except (MinikafkaError, KazooException, KazooTimeoutError):
                continue  # it is not there
            except Exception:  # noqa: BLE001 - without this thread the client would be refused for ever
                _log.exception(
                    "nobody can tell whether ZooKeeper at %s went back; it is looked at again", self._hosts
                )

    def _look(self) -> None:
        # kazoo tells its ``client_id`` only while there is a connection.
        seen, session_id, password = (
            self._client.last_zxid,
            self._client._session_id,
            self._client._session_passwd,
        )
        probe = self._connect()
        try:
            # In an ensemble the one that answers may be behind the others.
            probe.sync_async("/").get(timeout=self._patience_s())
            probe.exists_async("/").get(timeout=self._patience_s())
            reached = probe.last_zxid
        finally:
            self._disconnect(probe)
        if self._over.is_set() or reached >= seen:
            return
        _log.error(
            "ZooKeeper at %s went back: its last change is %#x, and this client has seen %#x; its data was "
            "restored from an older copy, or removed. What was changed since is lost there. This client "
            "begins a new session",
            self._hosts,
            reached,
            seen,
        )
        if session_id is not None:
            self._end_session(SessionTicket(session_id, password))
        self._client.last_zxid = 0
