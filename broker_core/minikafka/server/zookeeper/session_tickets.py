"""The ZooKeeper sessions of the brokers of one data directory: the file ``zookeeper-session``.

    {"session_id":72057793445625856,"password":"91bb…"}     the current session
    {"session_id":72057793445625855,"password":"0c7e…"}     earlier ones, the newest first

One line of JSON per session. A broker that starts ends the session of its killed predecessor, and so need not
wait for its time-out. The earlier sessions are kept for a ZooKeeper that is restored from an older copy: in
it a session that ended long ago is alive again, and holds this broker's registration.
"""

from __future__ import annotations

import contextlib
import logging
import os

from minikafka.base.errors import CoordinationError, StorageError
from minikafka.base.files import Files, read_file, replace_file
from minikafka.registry.store import SessionTicket, Store

SESSION_FILE = "zookeeper-session"
"""The file name, in the first data directory."""
_KEPT = 50

_log = logging.getLogger(__name__)


class SessionTickets:
    """The tickets (id and password) of this broker's sessions. For the jobs of the worker, and the start."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: tuple[SessionTicket, ...] = ()
        self.kept = True
        """True if the ticket of the current session is saved in the directory."""

    def take_over(self, files: Files, directory: str) -> None:
        """End the session of the previous broker on ``directory``, and save the own ticket there.

        Only the holder of the directory's lock may call this: the lock proves that the predecessor is dead.
        A broker whose ticket cannot be written serves anyway; the caller retries while not ``kept``.
        """
        path = os.path.join(directory, SESSION_FILE)
        known = self._read(files, path) or self._known
        own = self._store.ticket
        if known and known[0] != own and self._store.end_session(known[0]):
            _log.info("ended the ZooKeeper session of the previous broker on data directory %s", directory)
        self._known = (own, *(ticket for ticket in known if ticket != own))[:_KEPT]
        try:
            data = b"".join(ticket.to_json() for ticket in self._known)
            replace_file(files, path, data, private=True)
        except (StorageError, FileNotFoundError) as error:
            if self.kept:
                _log.warning(
                    "failed to save the ZooKeeper session, retrying: %s; if this broker crashes, its next "
                    "start has to wait for the session's time-out: free disk space or fix the disk",
                    error,
                )
            self.kept = False
        else:
            self.kept = True

    def end(self, session_id: int) -> bool:
        """End a session if it is an earlier one of this directory; return True if it was, and has ended."""
        ticket = next((known for known in self._known if known.session_id == session_id), None)
        if ticket is None or ticket == self._store.ticket or not self._store.end_session(ticket):
            return False
        _log.warning(
            "ended ZooKeeper session %#x, an earlier session of this broker, which was alive again because "
            "ZooKeeper was restored from an older copy",
            session_id,
        )
        return True

    @staticmethod
    def _read(files: Files, path: str) -> tuple[SessionTicket, ...]:
        try:
            first, *others = read_file(files, path).splitlines() or [b""]
            found = [SessionTicket.from_json(first, path)]
        except FileNotFoundError:
            return ()
        except (CoordinationError, StorageError) as error:
            _log.warning("ignored the saved ZooKeeper sessions: %s", error)
            return ()
        for line in others:
            with contextlib.suppress(CoordinationError):
                found.append(SessionTicket.from_json(line, path))
        return tuple(found)
