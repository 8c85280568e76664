"""The token of a client, kept and renewed while it is in use."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pytest

from minikafka.base.clock import ManualClock
from minikafka.base.errors import AuthenticationFailed, NetworkError
from minikafka.base.secrets import Password
from minikafka.net.token_cache import RENEWAL_BACKOFF_MS, THREAD_NAME, TokenCache
from minikafka.security.sasl.oauthbearer import OAuthBearerToken

LIFETIME_MS = 100_000
LIMIT_MS = 10_000
REFUSED = AuthenticationFailed("refused", "refused")


class Harness:
    """A cache on a manual clock; tasks that renew its token wait until ``run`` is called."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.answers: list[BaseException] = []
        """The errors of the next attempts; after them there are tokens."""
        self.attempts = 0
        self.tasks: list[Callable[[], None]] = []
        self.has_threads = True
        self.pauses: list[float] = []
        self.cache = TokenCache(
            self.fetch,
            lambda token: token.expires_ms - LIFETIME_MS // 5,
            100,
            10_000,
            self.clock,
            background=self.start,
            sleep=self.sleep,
        )

    def fetch(self) -> OAuthBearerToken:
        self.attempts += 1
        if self.answers:
            raise self.answers.pop(0)
        return OAuthBearerToken(Password(f"t{self.attempts}"), "a", self.clock.now_ms() + LIFETIME_MS)

    def start(self, task: Callable[[], None]) -> None:
        if not self.has_threads:
            raise RuntimeError("can't start new thread")
        token = self.cache._token
        if token is None or self.clock.now_ms() >= token.expires_ms:
            task()
        else:
            self.tasks.append(task)

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.clock.advance(round(seconds * 1000))

    def run(self) -> None:
        self.tasks.pop(0)()

    def value(self) -> str:
        return self.cache(LIMIT_MS).value.value


@pytest.fixture
def harness() -> Harness:
    return Harness()


def test_token_is_fetched_once_and_kept(harness: Harness) -> None:
    assert [harness.value(), harness.value()] == ["t1", "t1"]
    assert harness.tasks == []


def test_token_is_renewed_in_the_background_while_the_old_one_is_used(harness: Harness) -> None:
    harness.value()
    harness.clock.advance(80_000)
    assert [harness.value(), harness.value()] == ["t1", "t1"]
    assert len(harness.tasks) == 1
    harness.run()
    assert harness.value() == "t2"
    assert harness.tasks == []


def test_expired_token_is_replaced_before_it_is_used(harness: Harness) -> None:
    harness.value()
    harness.clock.advance(LIFETIME_MS)
    assert harness.value() == "t2"


def test_failed_renewal_is_reported_and_tried_again_later(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.value()
    harness.clock.advance(80_000)
    harness.answers.append(REFUSED)
    harness.value()
    harness.run()
    assert "cannot renew the token" in caplog.text
    assert harness.value() == "t1"
    assert harness.tasks == []
    harness.clock.advance(RENEWAL_BACKOFF_MS)
    assert harness.value() == "t1"
    harness.run()
    assert harness.value() == "t3"


def test_provider_that_cannot_be_reached_is_asked_again_with_backoff(harness: Harness) -> None:
    harness.answers = [NetworkError("down")] * 3
    assert harness.value() == "t4"
    assert harness.pauses == [0.1, 0.2, 0.4]


def test_provider_is_not_asked_after_the_longest_backoff(harness: Harness) -> None:
    harness.answers = [NetworkError("down")] * 99
    with pytest.raises(NetworkError, match="down"):
        harness.value()
    assert sum(harness.pauses) == pytest.approx(10)


@pytest.mark.parametrize("has_failed", [False, True])
def test_caller_waits_for_a_token_no_longer_than_its_limit(harness: Harness, has_failed: bool) -> None:
    release, tasks = threading.Event(), []
    refused = NetworkError("Connection refused", "https://idp/token", "check it")

    def fetch() -> OAuthBearerToken:
        if has_failed and not harness.attempts:
            harness.attempts += 1
            raise refused
        assert release.wait(10)
        return harness.fetch()

    def start(task: Callable[[], None]) -> None:
        tasks.append(threading.Thread(target=task))
        tasks[0].start()

    cache = TokenCache(
        fetch,
        lambda token: 0,
        1,
        1,
        harness.clock,
        "https://idp/token",
        background=start,
        sleep=harness.sleep,
    )
    with pytest.raises(NetworkError) as failed:
        cache(200)
    silent = (
        "https://idp/token: no token from the identity provider within 200 ms; check "
        "sasl.oauthbearer.token.endpoint.url, and that this host may connect to it"
    )
    assert str(failed.value) == (str(refused) if has_failed else silent)
    release.set()
    assert cache(LIMIT_MS).value.value == f"t{1 + has_failed}"  # of the same attempt
    tasks[0].join(10)
    assert len(tasks) == 1


def test_refusal_of_a_provider_is_not_repeated(harness: Harness) -> None:
    harness.answers = [REFUSED]
    with pytest.raises(AuthenticationFailed):
        harness.value()
    assert harness.attempts == 1
    assert harness.value() == "t2"


def test_new_token_that_has_expired_is_used_with_a_warning(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    fetch = harness.fetch

    def slow() -> OAuthBearerToken:
        token = fetch()
        harness.clock.advance(LIFETIME_MS)
        return token

    cache = TokenCache(slow, lambda token: 0, 0, 0, harness.clock)
    with caplog.at_level(logging.WARNING):
        assert cache(LIMIT_MS).value.value == "t1"
    assert "check the clock" in caplog.text


@pytest.mark.parametrize("error", [None, REFUSED, ValueError("a defect")])
def test_callers_wait_for_one_attempt(harness: Harness, error: Exception | None) -> None:
    begun, release = threading.Event(), threading.Event()

    def fetch() -> OAuthBearerToken:
        begun.set()
        assert release.wait(10)
        if error is not None:
            raise error
        return harness.fetch()

    cache = TokenCache(fetch, lambda token: token.expires_ms, 0, 0, harness.clock)
    outcomes: list[str] = []

    def ask() -> None:
        try:
            outcomes.append(cache(LIMIT_MS).value.value)
        except Exception as raised:  # noqa: BLE001 - what each caller gets is what the test is about
            outcomes.append(type(raised).__name__)

    first = threading.Thread(target=ask)
    first.start()
    assert begun.wait(10)
    attempt = cache._attempt
    assert attempt is not None
    others = [threading.Thread(target=ask) for _ in range(3)]
    for thread in others:
        thread.start()
    release.set()
    for thread in (first, *others):
        thread.join(10)
    assert outcomes == ["t1" if error is None else type(error).__name__] * 4


def test_renewal_runs_on_a_thread_that_ends(harness: Harness) -> None:
    fetched = threading.Event()

    def fetch() -> OAuthBearerToken:
        token = harness.fetch()
        if harness.attempts == 2:
            fetched.set()
        return token

    cache = TokenCache(fetch, lambda token: 0, 0, 0, harness.clock)
    cache(LIMIT_MS)
    cache(LIMIT_MS)
    assert fetched.wait(10)
    for thread in threading.enumerate():
        if thread.name == THREAD_NAME:
            thread.join(10)
            assert not thread.is_alive()


def test_renewal_without_a_thread_is_tried_again(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    harness.value()
    harness.clock.advance(80_000)
    harness.has_threads = False
    assert harness.value() == "t1"
    assert "can't start new thread" in caplog.text
    harness.has_threads = True
    harness.clock.advance(RENEWAL_BACKOFF_MS)
    assert harness.value() == "t1"
    harness.run()
    assert harness.value() == "t2"
