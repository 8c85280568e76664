"""How long a client waits: rates in windows, and whose limit counts."""

from __future__ import annotations

import logging

import pytest

from minikafka.base.rate import Rate
from minikafka.registry.entity_configs import ConfigChange
from minikafka.registry.users import ClientEntity, QuotaType, sanitize
from minikafka.server.quotas.client_quotas import UNLIMITED, ClientQuotaManager, QuotaConfig

USER = "ANONYMOUS"
A = ClientEntity(None, "a")


def quotas(**config: int) -> ClientQuotaManager:
    return ClientQuotaManager(QuotaConfig(**config))


def test_at_first_bytes_count_as_those_of_all_windows_but_one() -> None:
    rate = Rate(11, 1000)
    rate.record(10_000, 0)
    assert rate.throttle_ms(1000, 0) == 0
    rate.record(500, 0)
    assert rate.throttle_ms(1000, 0) == 500


def test_a_full_row_of_windows_counts_by_the_time_that_has_passed() -> None:
    rate = Rate(3, 1000)
    for now_ms in (0, 1000, 2500):
        rate.record(1000, now_ms)
    # 3000 bytes in 2.5 seconds, of which 2500 may be.
    assert rate.throttle_ms(1000, 2500) == 500
    assert rate.throttle_ms(1000, 2999) == 1


def test_bytes_of_windows_that_are_over_do_not_count() -> None:
    rate = Rate(2, 1000)
    rate.record(1_000_000, 0)
    rate.record(100, 1500)
    assert rate.throttle_ms(1000, 1999) > 0
    assert rate.throttle_ms(1000, 2000) == 0
    assert not rate.idle(2000)
    assert rate.idle(3500)


def test_a_steady_rate_below_the_limit_is_never_delayed() -> None:
    rate = Rate(11, 1000)
    for now_ms in range(0, 60_000, 100):
        rate.record(95, now_ms)
        assert rate.throttle_ms(1000, now_ms) == 0


def test_who_sends_as_fast_as_the_answers_come_is_held_to_the_limit() -> None:
    rate, now_ms, sent = Rate(11, 1000), 0, 0
    while now_ms < 120_000:
        rate.record(1000, now_ms)
        sent += 1000
        now_ms += 10 + rate.throttle_ms(1000, now_ms)
    assert sent / (now_ms / 1000) == pytest.approx(1000, rel=0.15)


def test_a_pause_is_never_longer_than_a_response_can_say() -> None:
    rate = Rate(2, 1000)
    rate.record(100_000_000, 0)
    assert rate.throttle_ms(1, 0) == 0x7FFFFFFF


def test_a_client_has_its_own_limit_or_the_default_or_the_brokers() -> None:
    made = quotas(producer_default=3000, windows=2)
    made.replace(
        {
            ClientEntity(None, "app"): {"producer_byte_rate": "1000"},
            ClientEntity(None, "<default>"): {"producer_byte_rate": "2000"},
        }
    )
    assert made.record(USER, "app", QuotaType.PRODUCE, 6000, 0) == 5000
    assert made.record(USER, "other", QuotaType.PRODUCE, 6000, 0) == 2000
    made.replace({})
    assert made.record(USER, "new", QuotaType.PRODUCE, 6000, 0) == 1000
    assert made.record(USER, "new", QuotaType.FETCH, 1 << 40, 0) == 0


def test_clients_and_directions_are_measured_apart() -> None:
    made = quotas(producer_default=1000, consumer_default=1000, windows=2)
    assert made.record(USER, "a", QuotaType.PRODUCE, 1000, 0) == 0
    assert made.record(USER, "b", QuotaType.PRODUCE, 1000, 0) == 0
    assert made.record(USER, "a", QuotaType.FETCH, 1000, 0) == 0
    assert made.record(USER, "a", QuotaType.PRODUCE, 1000, 0) == 1000


def test_a_change_holds_for_what_was_measured_before() -> None:
    made = quotas(producer_default=1000, windows=2)
    assert made.record(USER, "a", QuotaType.PRODUCE, 2000, 0) == 1000
    made.change(A, {"producer_byte_rate": "4000"})
    assert made.record(USER, "a", QuotaType.PRODUCE, 0, 0) == 0
    made.change(A, {})
    assert made.record(USER, "a", QuotaType.PRODUCE, 0, 0) == 1000


def test_nothing_needs_to_be_measured_where_nobody_has_a_limit() -> None:
    made = quotas()
    assert not made.limited
    made.change(A, {"consumer_byte_rate": "1"})
    assert made.limited
    made.change(A, {})
    assert not made.limited
    assert quotas(consumer_default=1).limited


@pytest.mark.parametrize(
    ("text", "limit"), [("1024", 1024), ("+5", 5), ("1024.0", 1024), ("9" * 30, UNLIMITED)]
)
def test_limits_are_numbers_as_the_releases_write_them(text: str, limit: int) -> None:
    made = quotas()
    made.change(A, {"producer_byte_rate": text})
    assert made._quota(USER, "a", QuotaType.PRODUCE)[0] == limit


@pytest.mark.parametrize("text", ["", "0", "-1", "1e3", "fast", "²", "9" * 5_000])
def test_what_is_no_limit_is_left_out_with_a_warning(text: str, caplog: pytest.LogCaptureFixture) -> None:
    made = quotas()
    made.change(A, {"producer_byte_rate": text, "consumer_byte_rate": "5"})
    assert made._quota(USER, "a", QuotaType.PRODUCE)[0] == UNLIMITED
    assert made._quota(USER, "a", QuotaType.FETCH)[0] == 5
    assert "clients/a: ignored producer_byte_rate=" in caplog.text


def test_idle_client_ids_are_forgotten() -> None:
    made = quotas(producer_default=1000, windows=2)
    for number in range(10_000):
        made.record(USER, f"client-{number}", QuotaType.PRODUCE, 1, number * 100)
    assert len(made._rates) < 200


LEVELS = (
    "users/al%20ice/clients/app",
    "users/al%20ice/clients/<default>",
    "users/al%20ice",
    "users/<default>/clients/app",
    "users/<default>/clients/<default>",
    "users/<default>",
    "clients/app",
    "clients/<default>",
)
"""The order of precedence, as in Kafka's ClientQuotaManager."""


def entity(path: str) -> ClientEntity:
    kind, _, name = path.partition("/")
    return ClientEntity.changed(ConfigChange(kind, name))


@pytest.mark.parametrize("first", range(len(LEVELS)))
def test_the_most_specific_quota_wins_in_the_order_of_kafka(first: int) -> None:
    made = quotas(producer_default=1)
    limits = {entity(path): {"producer_byte_rate": str(10 + n)} for n, path in enumerate(LEVELS)}
    made.replace(dict(list(limits.items())[first:]))
    assert made._quota("al ice", "app", QuotaType.PRODUCE)[0] == 10 + first


def test_a_quota_of_the_other_direction_is_passed_over() -> None:
    made = quotas()
    made.change(entity(LEVELS[0]), {"consumer_byte_rate": "5"})
    made.change(entity(LEVELS[6]), {"producer_byte_rate": "7"})
    assert made._quota("al ice", "app", QuotaType.PRODUCE)[0] == 7
    assert made._quota("al ice", "app", QuotaType.FETCH)[0] == 5


@pytest.mark.parametrize(
    ("path", "shared"),
    [
        ("users/alice", [("alice", "app"), ("alice", "other")]),
        ("users/<default>", [("alice", "app"), ("alice", "other")]),
        ("users/alice/clients/app", [("alice", "app"), ("alice", "app")]),
        ("clients/app", [("alice", "app"), ("bob", "app")]),
        ("clients/<default>", [("alice", "app"), ("bob", "app")]),
    ],
)
def test_clients_share_the_quota_that_they_have_together(path: str, shared: list[tuple[str, str]]) -> None:
    made = quotas(windows=2)
    made.change(entity(path), {"producer_byte_rate": "1000"})
    first, second = shared
    assert made.record(*first, QuotaType.PRODUCE, 1000, 0) == 0
    assert made.record(*second, QuotaType.PRODUCE, 1000, 0) == 1000


@pytest.mark.parametrize(
    ("path", "apart"),
    [
        ("users/<default>", [("alice", "app"), ("bob", "app")]),
        ("users/alice/clients/<default>", [("alice", "app"), ("alice", "other")]),
        ("users/<default>/clients/<default>", [("alice", "app"), ("bob", "app")]),
        ("users/<default>/clients/app", [("alice", "app"), ("bob", "app")]),
        ("clients/<default>", [("alice", "app"), ("alice", "other")]),
    ],
)
def test_clients_that_a_quota_holds_for_one_by_one_are_apart(path: str, apart: list[tuple[str, str]]) -> None:
    made = quotas(windows=2)
    made.change(entity(path), {"producer_byte_rate": "1000"})
    for client in apart:
        assert made.record(*client, QuotaType.PRODUCE, 1000, 0) == 0


def test_a_user_who_is_called_default_does_not_have_the_default() -> None:
    made = quotas()
    made.change(ClientEntity.of(user="<default>"), {"producer_byte_rate": "5"})
    made.change(ClientEntity(sanitize("<default>"), None), {"producer_byte_rate": "7"})
    assert made._quota("<default>", "app", QuotaType.PRODUCE)[0] == 7
    assert made._quota("alice", "app", QuotaType.PRODUCE)[0] == 5


def test_a_change_is_logged_with_its_entity_and_only_if_it_is_one(caplog: pytest.LogCaptureFixture) -> None:
    made = quotas()
    with caplog.at_level(logging.INFO):
        for rate in ("5", "5.0"):
            made.change(entity("users/alice/clients/app"), {"producer_byte_rate": rate})
        made.change(entity("users/alice/clients/app"), {})
        made.change(entity("users/alice"), {"SCRAM-SHA-256": "salt=c2FsdA=="})
    assert caplog.messages == [
        "quota of users/alice/clients/app: producer_byte_rate=5",
        "quota of users/alice/clients/app: no limit of its own",
    ]


def test_an_unsupported_config_is_logged_once_until_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    made = quotas()
    for _ in range(2):
        made.replace({entity("users/alice"): {"request_rate": "50", "producer_byte_rate": "5"}})
    assert caplog.messages == ["quota of users/alice: ignored unsupported config request_rate"]
    made.change(entity("users/alice"), {})
    made.change(entity("users/alice"), {"request_rate": "50"})
    assert len(caplog.messages) == 2


def test_time_has_a_quota_with_a_fraction() -> None:
    made = quotas(windows=2)
    made.change(A, {"request_percentage": "12.5"})
    assert made.limited == {QuotaType.REQUEST}
    assert made.record(USER, "a", QuotaType.REQUEST, 12.5, 0) == 0
    assert made.record(USER, "a", QuotaType.REQUEST, 2.5, 0) == 200


def test_what_is_taken_back_does_not_count() -> None:
    made = quotas(windows=2)
    made.change(A, {"consumer_byte_rate": "1000"})
    assert made.record(USER, "a", QuotaType.FETCH, 3000, 0) == 2000
    assert made.record(USER, "a", QuotaType.FETCH, -3000, 0) == 0


def test_a_response_may_have_the_bytes_of_all_windows_but_one() -> None:
    made = quotas()
    made.change(A, {"consumer_byte_rate": "1000"})
    assert made.window_bytes(USER, "a") == 10_000
    assert made.window_bytes(USER, "b") == UNLIMITED


def test_partitions_may_be_changed_while_no_tokens_are_owed() -> None:
    made = quotas()
    made.change(A, {"controller_mutation_rate": "2"})

    def change(count: int, now_ms: int, *, strict: bool = True) -> tuple[int, bool]:
        return made.record_mutations(USER, "a", count, now_ms, strict=strict)

    assert change(30, 0) == (0, True)
    assert change(1, 0) == (4000, False)
    assert change(1, 3999) == (1, False)
    assert change(1, 4000) == (0, True)
    assert change(1, 4000, strict=False) == (1000, True)
    assert made.record_mutations(USER, "b", 1000, 4000, strict=True) == (0, True)


def test_a_raised_limit_holds_for_what_is_owed() -> None:
    made = quotas()
    made.change(A, {"controller_mutation_rate": "0.1"})
    assert made.record_mutations(USER, "a", 101, 0, strict=False) == (999_000, True)
    made.change(A, {"controller_mutation_rate": "10"})
    assert made.record_mutations(USER, "a", 0, 0, strict=False) == (0, True)


@pytest.mark.parametrize("key", ["request_percentage", "controller_mutation_rate"])
@pytest.mark.parametrize("text", ["0", "-1", "inf", "nan", "x", ""])
def test_an_invalid_limit_with_a_fraction_is_ignored(
    key: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    made = quotas()
    made.change(A, {key: text})
    assert not made.limited
    assert f"ignored {key}" in caplog.text


def test_use_of_a_quota_has_the_limit_of_those_who_share_it() -> None:
    limits = quotas(consumer_default=9)
    changes = {
        ClientEntity("alice", "a"): "1",
        ClientEntity("alice", None): "2",
        ClientEntity("<default>", "b"): "3",
        ClientEntity(None, "c"): "4",
    }
    for entity, limit in changes.items():
        limits.change(entity, {"consumer_byte_rate": limit})
    for user, client_id in (("alice", "a"), ("alice", "x"), ("bob", "b"), ("bob", "c"), ("bob", "d")):
        limits.record(user, client_id, QuotaType.FETCH, 100, 0)
    found = {usage.entity: usage.limit for usage in limits.usages(0, lambda _: True)}
    assert found == {
        ClientEntity("alice", "a"): 1,
        ClientEntity("alice", None): 2,
        ClientEntity("bob", "b"): 3,
        ClientEntity(None, "c"): 4,
        ClientEntity(None, "d"): 9,
    }


def test_use_of_a_quota_without_a_limit_any_more_is_left_out() -> None:
    limits = quotas()
    limits.change(A, {"consumer_byte_rate": "10"})
    limits.record(USER, "a", QuotaType.FETCH, 100, 0)
    assert [usage.per_second for usage in limits.usages(0, lambda _: True)] == [10]
    limits.change(A, {})
    assert limits.usages(0, lambda _: True) == []
