"""The token of a client, kept and renewed while it is in use.

A thread fetches it, and ends with its attempt. Callers wait for that, each for a limited time, and for the
same attempt; while it is renewed they go on with the old one. Nothing runs while nobody needs a token:
connections ask for it only when they are opened.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

from minikafka.base.clock import Clock
from minikafka.base.errors import NetworkError
from minikafka.security.sasl.oauthbearer import OAuthBearerToken
from minikafka.security.sasl.sasl_config import TOKEN_ENDPOINT

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
        place: str = "",
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
        self._place = place
        self._background = background
        self._sleep = sleep
        # Guards the fields below.
        self._lock = threading.Lock()
        self._token: OAuthBearerToken | None = None
        self._refresh_ms = 0
        self._attempt: Future[OAuthBearerToken] | None = None
        """The attempt to fetch a token that is under way."""
        self._last_error: NetworkError | None = None
        """The error of its last request, while it goes on."""

    def __call__(self, limit_ms: int) -> OAuthBearerToken:
        """Return a token that has not expired; wait for one for ``limit_ms`` at most.

        Raises what ``fetch`` raises, and NetworkError if there is none in time.
        """
        with self._lock:
            token, now_ms = self._token, self._clock.now_ms()
            valid = token if token is not None and now_ms < token.expires_ms else None
            begun = None
            if self._attempt is None and (valid is None or now_ms >= self._refresh_ms):
                begun = self._attempt = Future()
                self._last_error = None
            attempt = self._attempt
        if begun is not None:
            self._begin(begun, is_renewal=valid is not None)
        if valid is not None:
            return valid
        assert attempt is not None, "somebody fetches a token"
        wait([attempt], limit_ms / 1000)
        if not attempt.done():
            raise self._not_in_time(limit_ms)
        return attempt.result()

    def _begin(self, attempt: Future[OAuthBearerToken], *, is_renewal: bool) -> None:
        try:
            self._background(lambda: self._run(attempt, is_renewal=is_renewal))
        except RuntimeError as error:  # the system has no thread left
            self._fail(attempt, NetworkError(f"no token can be fetched: {error}"), is_renewal=is_renewal)

    def _run(self, attempt: Future[OAuthBearerToken], *, is_renewal: bool) -> None:
        """Fetch a token for those that wait for ``attempt``."""
        try:
            backoff = self._retry_backoff_ms, self._retry_backoff_max_ms
            token = with_retries(self._fetch_once, *backoff, self._clock, self._sleep)
            refresh_ms = self._refresh_time_of(token)
        except Exception as error:  # noqa: BLE001 - the callers get it
            self._fail(attempt, error, is_renewal=is_renewal)
            return
        if token.expires_ms <= self._clock.now_ms():
            _log.warning(
                "the identity provider's new token has expired already: check the clock of this host"
            )
        with self._lock:
            self._attempt, self._token, self._refresh_ms = None, token, refresh_ms
        attempt.set_result(token)

    def _fetch_once(self) -> OAuthBearerToken:
        try:
            return self._fetch()
        except NetworkError as error:
            self._last_error = error
            raise

    def _fail(self, attempt: Future[OAuthBearerToken], error: Exception, *, is_renewal: bool) -> None:
        with self._lock:
            self._attempt, self._refresh_ms = None, self._clock.now_ms() + RENEWAL_BACKOFF_MS
        if is_renewal:  # the callers go on with the old token
            _log.warning("cannot renew the token for OAUTHBEARER; the next attempt follows: %s", error)
        attempt.set_exception(error)

    def _not_in_time(self, limit_ms: int) -> NetworkError:
        """Return the error of a caller that waits no longer, while the attempt goes on."""
        last = self._last_error
        if last is not None:
            return NetworkError(last.detail, last.peer, last.advice)
        advice = f"check {TOKEN_ENDPOINT}, and that this host may connect to it"
        return NetworkError(f"no token from the identity provider within {limit_ms} ms", self._place, advice)
