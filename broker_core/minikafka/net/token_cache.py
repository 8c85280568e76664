"""The token of a client, kept and renewed while it is in use.

The first caller fetches it, and others wait for the same attempt. Once it is time to renew it, a thread does
so while callers go on with the old one; the thread ends with its attempt. Nothing runs while nobody needs a
token: connections ask for it only when they are opened.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from minikafka.base.clock import Clock
from minikafka.base.errors import MinikafkaError, NetworkError
from minikafka.security.sasl.oauthbearer import OAuthBearerToken

T = TypeVar("T")

_log = logging.getLogger(__name__)

RENEWAL_BACKOFF_MS = 10_000
"""The time after a failed renewal until the next attempt, as in Kafka."""


THREAD_NAME = "minikafka-identity-provider"


def in_background(task: Callable[[], None]) -> None:
    """Run ``task`` on a thread that does not keep the process alive."""
    threading.Thread(target=task, name=THREAD_NAME, daemon=True).start()


def with_retries(
    attempt: Callable[[], T], backoff_ms: int, longest_ms: int, clock: Clock, sleep: Callable[[float], None]
) -> T:
    """Return what ``attempt`` returns. A NetworkError is repeated for ``longest_ms``, with growing pauses."""
    end_ms = clock.monotonic_ms() + longest_ms
    while True:
        try:
            return attempt()
        except NetworkError:
            pause_ms = min(backoff_ms, end_ms - clock.monotonic_ms())
            if pause_ms <= 0:
                raise
        sleep(pause_ms / 1000)
        backoff_ms *= 2


class TokenCache:
    """A source of one valid token. Thread-safe."""

    def __init__(
        self,
        fetch: Callable[[], OAuthBearerToken],
        refresh_ms: Callable[[OAuthBearerToken], int],
        retry_backoff_ms: int,
        retry_backoff_max_ms: int,
        clock: Clock,
        *,
        background: Callable[[Callable[[], None]], None] = in_background,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """For ``fetch`` and ``refresh_ms`` see ``login.KeepToken``."""
        self._fetch = fetch
        self._refresh_time_of = refresh_ms
        self._retry_backoff_ms = retry_backoff_ms
        self._retry_backoff_max_ms = retry_backoff_max_ms
        self._clock = clock
        self._background = background
        self._sleep = sleep
        # Guards the fields below.
        self._lock = threading.Lock()
        self._token: OAuthBearerToken | None = None
        self._refresh_ms = 0
        self._attempt: Future[OAuthBearerToken] | None = None
        """The attempt to fetch a token that is under way."""

    def __call__(self) -> OAuthBearerToken:
        """Return a token that has not expired. Raises what ``fetch`` raises."""
        with self._lock:
            token, attempt, now_ms = self._token, self._attempt, self._clock.now_ms()
            is_valid = token is not None and now_ms < token.expires_ms
            is_mine = attempt is None and (not is_valid or now_ms >= self._refresh_ms)
            if is_mine:
                attempt = self._attempt = Future()
        if token is not None and is_valid:
            if is_mine:
                self._begin_renewal()
            return token
        assert attempt is not None, "somebody fetches a token"
        return self._run(attempt) if is_mine else attempt.result()

    def _begin_renewal(self) -> None:
        try:
            self._background(self._renew)
        except RuntimeError as error:  # the system has no thread left
            attempt = self._end_failed_attempt()
            attempt.set_exception(NetworkError(f"the token cannot be renewed: {error}"))
            _log.warning("cannot renew the token for OAUTHBEARER; the next attempt follows: %s", error)

    def _end_failed_attempt(self) -> Future[OAuthBearerToken]:
        with self._lock:
            attempt, self._attempt = self._attempt, None
            self._refresh_ms = self._clock.now_ms() + RENEWAL_BACKOFF_MS
        assert attempt is not None, "the caller has begun it"
        return attempt

    def _renew(self) -> None:
        attempt = self._attempt
        assert attempt is not None, "it ends here"
        try:
            self._run(attempt)
        except MinikafkaError as error:
            _log.warning("cannot renew the token for OAUTHBEARER; the next attempt follows: %s", error)

    def _run(self, attempt: Future[OAuthBearerToken]) -> OAuthBearerToken:
        """Fetch a token, for this caller and those that wait for ``attempt``."""
        try:
            backoff = self._retry_backoff_ms, self._retry_backoff_max_ms
            token = with_retries(self._fetch, *backoff, self._clock, self._sleep)
            refresh_ms = self._refresh_time_of(token)
        except BaseException as error:
            self._end_failed_attempt()
            interrupted = NetworkError("the request for a token was interrupted")
            attempt.set_exception(error if isinstance(error, MinikafkaError) else interrupted)
            raise
        if token.expires_ms <= self._clock.now_ms():
            _log.warning(
                "the identity provider's new token has expired already: check the clock of this host"
            )
        with self._lock:
            self._attempt, self._token, self._refresh_ms = None, token, refresh_ms
        attempt.set_result(token)
        return token
