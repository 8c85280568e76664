"""The keys of an identity provider, kept for a broker that validates signed tokens, and fetched again.

Nobody waits for the provider but the broker's start: keys are fetched by a thread that ends with its attempt,
each time ``sasl.oauthbearer.jwks.endpoint.refresh.ms`` have passed. A token with a key that is not among them
is refused, and the keys are fetched at once: it may be signed with a new one. As anyone may send such tokens,
this is done once in ten seconds at most, and once in a minute for one key.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from urllib.parse import unquote, urlsplit

from minikafka.base.clock import Clock
from minikafka.base.errors import MinikafkaError, NetworkError, StoreError
from minikafka.net.http import fetch
from minikafka.net.tls import read_file
from minikafka.net.token_cache import in_background, with_retries
from minikafka.security.jaas import JaasConfig
from minikafka.security.sasl.oidc import HttpRequest, HttpResponse
from minikafka.security.sasl.signed_tokens import JWKS_ENDPOINT, SignedTokenConfig, VerificationKey, read_jwks

_log = logging.getLogger(__name__)

EXPEDITED_INTERVAL_MS = 10_000
MISSING_KEY_MS = 60_000
FAILURE_BACKOFF_MS = 10_000
"""The time after a failed attempt until the next one."""
_FAILED = "cannot fetch the keys that verify tokens; tokens of new keys are refused"
_MAX_MISSING_KEYS = 64
_MAX_KEY_ID_CHARS = 1_000


class KeyCache:
    """The current keys of an identity provider. Thread-safe."""

    def __init__(
        self,
        config: SignedTokenConfig,
        jaas: JaasConfig,
        clock: Clock,
        *,
        send: Callable[[HttpRequest], HttpResponse] = fetch,
        read: Callable[[str], bytes] = read_file,
        background: Callable[[Callable[[], None]], None] = in_background,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """config: has no faults. jaas: that of the listener, whose options are those of the connection."""
        self._config = config
        self._clock = clock
        self._request = config.request(jaas)
        self._send = send
        self._read = read
        self._background = background
        self._sleep = sleep
        # Guards the fields below.
        self._lock = threading.Lock()
        self._found: tuple[VerificationKey, ...] = ()
        self._refresh_ms = 0
        """The monotonic time of the next attempt."""
        self._expedited_ms: int | None = None
        self._missing: dict[str, int] = {}
        """Key id -> the monotonic time at which a token had it."""
        self._is_fetching = False

    def start(self) -> None:
        """Fetch the keys, once and without repetitions. After a failure, which is logged, tokens are refused
        until another attempt succeeds.
        """
        with self._lock:
            self._is_fetching = True
        self._fetch(self._load)

    def keys(self) -> tuple[VerificationKey, ...]:
        """Return the keys, without waiting; fetch them in the background when it is time."""
        with self._lock:
            found, now_ms = self._found, self._clock.monotonic_ms()
            begin = not self._is_fetching and now_ms >= self._refresh_ms
            self._is_fetching = self._is_fetching or begin
        if begin:
            self._begin_refresh()
        return found

    def key_is_missing(self, key_id: str) -> None:
        """Fetch the keys in the background, as a token has a key that is not among them."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            seen_ms = self._missing.get(key_id)
            if self._is_fetching or len(key_id) > _MAX_KEY_ID_CHARS:
                return
            if seen_ms is not None and now_ms - seen_ms < MISSING_KEY_MS:
                return
            if self._expedited_ms is not None and now_ms - self._expedited_ms < EXPEDITED_INTERVAL_MS:
                return
            if len(self._missing) >= _MAX_MISSING_KEYS:
                self._missing.clear()
            self._missing[key_id] = self._expedited_ms = now_ms
            self._is_fetching = True
        self._begin_refresh()

    def _begin_refresh(self) -> None:
        try:
            self._background(self._refresh)
        except RuntimeError as error:  # the system has no thread left
            self._end(None, FAILURE_BACKOFF_MS)
            _log.warning("%s: %s", _FAILED, error)

    def _refresh(self) -> None:
        config = self._config
        backoff = config.jwks_retry_backoff_ms, config.jwks_retry_backoff_max_ms
        self._fetch(lambda: with_retries(self._load, *backoff, self._clock, self._sleep))

    def _fetch(self, load: Callable[[], tuple[VerificationKey, ...]]) -> None:
        found, wait_ms = None, FAILURE_BACKOFF_MS
        try:
            found = load()
            wait_ms = self._config.jwks_refresh_ms
        except MinikafkaError as error:
            _log.warning("%s: %s", _FAILED, error)
        finally:
            self._end(found, wait_ms)

    def _end(self, found: tuple[VerificationKey, ...] | None, wait_ms: int) -> None:
        """End an attempt, which may have found nothing, and begin the next one in ``wait_ms``."""
        with self._lock:
            self._is_fetching = False
            self._refresh_ms = self._clock.monotonic_ms() + wait_ms
            self._found = self._found if found is None else found

    def _load(self) -> tuple[VerificationKey, ...]:
        url = urlsplit(self._request.url)
        if url.scheme.lower() == "file":
            path = unquote(url.path)
            try:
                return read_jwks(self._read(path))
            except OSError as error:
                raise StoreError(f"cannot read {path}: {error.strerror}; check {JWKS_ENDPOINT}") from None
        response = self._send(self._request)
        if response.status != 200:
            text = f"no keys: status {response.status}"
            raise NetworkError(text, self._request.place, f"check {JWKS_ENDPOINT}")
        return read_jwks(response.body)
