"""Sessions with ZooKeeper that brokers of one data directory had: the file ``zookeeper-session``.

    {"session_id":72057793445625856,"password":"91bb…"}     the present one
    {"session_id":72057793445625855,"password":"0c7e…"}     earlier ones, the newest first

One line of JSON a session. A broker that starts ends the session that its killed predecessor left, and need
not wait for its time-out. The earlier ones are for a ZooKeeper that was restored from an older copy: there a
session that ended long ago lives again, and holds this broker's registration.
"""

from __future__ import annotations

import contextlib
import logging
import os

from minikafka.base.errors import CoordinationError, StorageError
from minikafka.base.files import Files, read_file, replace_file
from minikafka.registry.store import SessionTicket, Store

SESSION_FILE = "zookeeper-session"
"""In the first data directory."""
_KEPT = 50

_log = logging.getLogger(__name__)


class SessionTickets:
    """See the module. For the jobs of the worker, and the start."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: tuple[SessionTicket, ...] = ()
        self.kept = True
        """Whether the directory has the present session's ticket."""

    def take_over(self, files: Files, directory: str) -> None:
        """End the session of the broker that held ``directory`` before, and keep the own ticket there.

        Only the holder of the directory's lock may call this: the lock proves that the predecessor is dead.
        A ticket that cannot be written is no reason not to serve: it is to be tried again while not ``kept``.
        """
        path = os.path.join(directory, SESSION_FILE)
        known = self._read(files, path) or self._known
        own = self._store.ticket
        if known and known[0] != own and self._store.end_session(known[0]):
            _log.info("ended the ZooKeeper session that the previous broker on %s left", directory)
        self._known = (own, *(one for one in known if one != own))[:_KEPT]
        try:
            data = b"".join(ticket.to_json() for ticket in self._known)
            replace_file(files, path, data, private=True)
        except (StorageError, FileNotFoundError) as error:
            if self.kept:
                _log.warning(
                    "%s; until it can be, the next broker after a crash of this one has to wait for the "
                    "time-out of its ZooKeeper session: make room, or mend the disk",
                    error,
                )
            self.kept = False
        else:
            self.kept = True

    def end(self, session_id: int) -> bool:
        """End a session if it is an earlier one of this directory; whether it was, and has ended."""
        ticket = next((one for one in self._known if one.session_id == session_id), None)
        if ticket is None or ticket == self._store.ticket or not self._store.end_session(ticket):
            return False
        _log.warning(
            "ended ZooKeeper session %#x, an earlier one of this broker, which lives again: ZooKeeper was "
            "restored from an older copy",
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
            _log.warning("%s; it is ignored", error)
            return ()
        for line in others:
            with contextlib.suppress(CoordinationError):
                found.append(SessionTicket.from_json(line, path))
        return tuple(found)
