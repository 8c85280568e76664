"""The keys of an identity provider, kept and fetched again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.errors import NetworkError
from minikafka.net.key_cache import EXPEDITED_INTERVAL_MS, FAILURE_BACKOFF_MS, MISSING_KEY_MS, KeyCache
from minikafka.security.jaas import JaasConfig
from minikafka.security.sasl.oidc import HttpRequest, HttpResponse
from minikafka.security.sasl.signed_tokens import SignedTokenConfig
from tests.unit.security.sasl.test_signed_tokens import jwk, jwks, private_key

HOUR_MS = 3_600_000
URL = "https://example.com/keys"


class Harness:
    """A cache on a manual clock; background tasks wait until ``run`` is called."""

    def __init__(self, url: str = URL) -> None:
        self.clock = ManualClock()
        self.tasks: list[Callable[[], None]] = []
        self.has_threads = True
        self.attempts = 0
        self.key_ids = ["k1"]
        self.status = 200
        self.errors: list[Exception] = []
        self.cache = KeyCache(
            SignedTokenConfig(jwks_endpoint_url=url),
            JaasConfig.parse("M required;"),
            self.clock,
            send=self.send,
            read=self.read,
            background=self.start,
            sleep=lambda seconds: self.clock.advance(round(seconds * 1000)),
        )

    def start(self, task: Callable[[], None]) -> None:
        if not self.has_threads:
            raise RuntimeError("can't start new thread")
        self.tasks.append(task)

    def send(self, request: HttpRequest) -> HttpResponse:
        assert (request.url, request.body) == (URL, None)
        return HttpResponse(self.status, self._body())

    def read(self, path: str) -> bytes:
        assert path == "/etc/keys.json"
        return self._body()

    def _body(self) -> bytes:
        self.attempts += 1
        if self.errors:
            raise self.errors.pop(0)
        return jwks(*(jwk(private_key(), kid=key_id) for key_id in self.key_ids))

    def run(self) -> None:
        """Carry out the one background task."""
        (task,) = self.tasks
        self.tasks.clear()
        task()

    def ids(self) -> list[str | None]:
        return [key.key_id for key in self.cache.keys()]  # noqa: SIM118 - it is no mapping


@pytest.fixture
def harness() -> Harness:
    harness = Harness()
    harness.cache.start()
    return harness


@pytest.mark.parametrize("url", [URL, "file:///etc/keys.json"])
def test_keys_are_fetched_at_the_start(url: str) -> None:
    harness = Harness(url)
    harness.cache.start()
    assert harness.ids() == ["k1"]
    assert harness.tasks == []


def test_keys_are_fetched_again_in_the_background_after_an_hour(harness: Harness) -> None:
    harness.key_ids = ["k2"]
    harness.clock.advance(HOUR_MS - 1)
    harness.cache.keys()
    assert harness.tasks == []
    harness.clock.advance(1)
    assert [harness.ids(), harness.ids()] == [["k1"], ["k1"]]
    harness.run()
    assert harness.ids() == ["k2"]


@pytest.mark.parametrize("error", [NetworkError("down"), OSError(2, "No such file or directory")])
def test_failure_at_the_start_is_logged_and_tried_again(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    harness = Harness("file:///etc/keys.json" if isinstance(error, OSError) else URL)
    harness.errors = [error]
    harness.cache.start()
    assert "cannot fetch the keys that verify tokens" in caplog.text
    assert harness.ids() == []
    assert harness.tasks == []
    harness.clock.advance(FAILURE_BACKOFF_MS)
    harness.ids()
    harness.run()
    assert harness.ids() == ["k1"]


def test_failure_keeps_the_keys_and_is_repeated_with_backoff(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.clock.advance(HOUR_MS)
    harness.errors = [NetworkError("down")] * 2
    harness.ids()
    harness.run()
    assert harness.attempts == 4
    assert caplog.text == ""
    assert harness.ids() == ["k1"]


@pytest.mark.parametrize(("status", "key_ids"), [(503, ["k2"]), (200, [])])
def test_useless_response_keeps_the_keys(
    harness: Harness, caplog: pytest.LogCaptureFixture, status: int, key_ids: list[str]
) -> None:
    harness.status, harness.key_ids = status, key_ids
    harness.clock.advance(HOUR_MS)
    harness.ids()
    harness.run()
    assert "cannot fetch the keys" in caplog.text
    assert harness.ids() == ["k1"]


def test_missing_key_fetches_the_keys_at_once(harness: Harness) -> None:
    harness.key_ids = ["k1", "k2"]
    harness.cache.key_is_missing("k2")
    assert harness.ids() == ["k1"]
    harness.run()
    assert harness.ids() == ["k1", "k2"]


def test_missing_key_is_asked_for_once_in_a_minute(harness: Harness) -> None:
    harness.cache.key_is_missing("k2")
    harness.run()
    harness.clock.advance(EXPEDITED_INTERVAL_MS)
    harness.cache.key_is_missing("k2")
    assert harness.tasks == []
    harness.clock.advance(MISSING_KEY_MS)
    harness.cache.key_is_missing("k2")
    assert len(harness.tasks) == 1


def test_invented_keys_are_asked_for_at_a_bounded_rate(harness: Harness) -> None:
    for number in range(1_000):
        harness.cache.key_is_missing(f"x{number}")
        harness.clock.advance(100)
        while harness.tasks:
            harness.run()
    assert harness.attempts <= 1 + 100_000 // EXPEDITED_INTERVAL_MS
    assert len(harness.cache._missing) <= 64


def test_long_id_of_a_key_is_asked_for_by_nobody(harness: Harness) -> None:
    harness.cache.key_is_missing("x" * 1_001)
    assert harness.tasks == []


def test_missing_key_waits_for_the_attempt_that_is_under_way(harness: Harness) -> None:
    harness.cache.key_is_missing("k2")
    harness.cache.key_is_missing("k3")
    assert len(harness.tasks) == 1


def test_refresh_without_a_thread_is_tried_again(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    harness.clock.advance(HOUR_MS)
    harness.key_ids = ["k2"]
    harness.has_threads = False
    assert harness.ids() == ["k1"]
    assert "can't start new thread" in caplog.text
    harness.has_threads = True
    harness.clock.advance(FAILURE_BACKOFF_MS)
    assert harness.ids() == ["k1"]
    harness.run()
    assert harness.ids() == ["k2"]
