"""Sessions of browsers: who has logged in, with which access, and the tokens against forged forms.

A session is a random id in a cookie. The token of its forms is a keyed hash of the id, so a page of another
site cannot make one. Without a login all sessions share one access and none is remembered.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from minikafka.base.errors import AuthenticationFailed, MinikafkaError
from minikafka.console.access import Access
from minikafka.console.settings import PAGE_TIMEOUT_MS, ConsoleSettings, Login

SESSIONS_MAX = 50
IDLE_S = 8 * 3600.0
LOGINS_MAX = 16
"""Logins at the same time: each waits for a broker."""
LOGINS_OF_AN_ADDRESS_MAX = 4
"""Those from one address, which must not keep others out."""
ID_BYTES = 32


class LoginRefused(MinikafkaError):
    """A login that is refused; the message says why, without the secret."""


@dataclass(slots=True)
class Session:
    """A browser that has logged in."""

    session_id: str
    access: Access
    user: str | None
    """None for the token's and the anonymous user."""
    used_s: float = 0.0


class Sessions:
    """All sessions of a console. Thread-safe."""

    def __init__(self, settings: ConsoleSettings, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._monotonic = monotonic
        self._secret = secrets.token_bytes(ID_BYTES)
        self._lock = threading.Lock()
        self._logins: Counter[str] = Counter()
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._shared: Access | None = None
        if settings.login is not Login.SASL:
            self._shared = Access(settings.connect(None, None), settings.store)

    def find(self, session_id: str) -> Session | None:
        """Return the session of an id; None if a login is needed."""
        if self._settings.login is Login.NONE:
            assert self._shared is not None
            return Session(session_id, self._shared, None)
        with self._lock:
            self._expire()
            session = self._sessions.get(session_id)
            if session is not None:
                session.used_s = self._monotonic()
                self._sessions.move_to_end(session_id)
            return session

    def new_id(self) -> str:
        """Return the id of a new session."""
        return secrets.token_urlsafe(ID_BYTES)

    def csrf_token(self, session_id: str) -> str:
        """Return the token that forms of a session carry."""
        return hmac.new(self._secret, session_id.encode("utf-8"), hashlib.sha256).hexdigest()

    def is_csrf_token(self, session_id: str, token: str) -> bool:
        """Return True for the token of a session's forms."""
        return hmac.compare_digest(self.csrf_token(session_id).encode(), token.encode("utf-8"))

    def log_in(self, *, token: str = "", user: str = "", password: str = "", address: str = "") -> Session:
        """Return a new session of a browser at an address. Raises LoginRefused."""
        if self._settings.login is Login.TOKEN:
            access, name = self._by_token(token), None
        else:
            with self._one_login(address):
                access, name = self._by_sasl(user, password), user
        session = Session(self.new_id(), access, name, self._monotonic())
        with self._lock:
            self._sessions[session.session_id] = session
            while len(self._sessions) > SESSIONS_MAX:
                self._end(next(iter(self._sessions)))
        return session

    @contextmanager
    def _one_login(self, address: str) -> Iterator[None]:
        with self._lock:
            if self._logins[address] >= LOGINS_OF_AN_ADDRESS_MAX or sum(self._logins.values()) >= LOGINS_MAX:
                raise LoginRefused("too many logins at the same time; try again in a moment")
            self._logins[address] += 1
        try:
            yield
        finally:
            with self._lock:
                self._logins -= Counter([address])  # drops addresses without a login

    def _by_token(self, token: str) -> Access:
        assert self._shared is not None
        if not hmac.compare_digest(token.strip().encode("utf-8"), self._settings.token.encode("utf-8")):
            raise LoginRefused("this is not the token; it is the one that the console printed at its start")
        return self._shared

    def _by_sasl(self, user: str, password: str) -> Access:
        if not user or not password:
            raise LoginRefused("give a user and a password of the cluster")
        cluster = self._settings.connect(user, password)
        try:
            if not cluster.check_login(PAGE_TIMEOUT_MS):
                raise LoginRefused("no broker answers, so the password cannot be checked; try again")
        except AuthenticationFailed:
            cluster.close()
            raise LoginRefused("the cluster refuses this user or password") from None
        except MinikafkaError:
            cluster.close()
            raise
        return Access(cluster)  # ZooKeeper knows nothing of this user's rights

    def log_out(self, session_id: str) -> None:
        """End a session, if it exists."""
        with self._lock:
            self._end(session_id)

    def close(self) -> None:
        """End all sessions."""
        with self._lock:
            for session_id in list(self._sessions):
                self._end(session_id)
            if self._shared is not None:
                self._shared.close()

    def _expire(self) -> None:
        before = self._monotonic() - IDLE_S
        for session_id in [name for name, session in self._sessions.items() if session.used_s < before]:
            self._end(session_id)

    def _end(self, session_id: str) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None and session.access is not self._shared:
            session.access.close()
