"""Every page of the console on brokers in memory: what it shows, and with a part of the cluster away."""

from __future__ import annotations

import html
import re
from collections.abc import Callable

import pytest

from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.zookeeper.groups import ZooKeeperGroups
from minikafka.console.app import PAGES
from minikafka.records.format.batch import build_batch
from minikafka.records.format.message_set import Record
from minikafka.wire.api import ApiKey
from tests.support.broker_harness import SERVED, BrokerHarness
from tests.unit.console.conftest import T0, T1, ConsoleClient

EVIL = b"</td><script>alert(1)</script><img src=x onerror=alert(2)>"


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("/", "healthy"),
        ("/topics", "orders"),
        ("/topics/orders", "Partitions of orders"),
        ("/topics/orders/configuration", "cleanup.policy"),
        ("/topics/orders/groups", "No group has offsets"),
        ("/topics/orders/messages", "10 messages, the newest first"),
        ("/topics/orders/search", "Text or expression"),
        ("/topics/orders/tail", "Live tail"),
        ("/topics/orders/0/3", "orders-0 offset 3"),
        ("/topics/empty/messages", "No message here"),
        ("/groups", "There are no groups"),
        ("/brokers", "controller"),
        ("/brokers/1", "log.retention.ms"),
        ("/access", "no authorizer"),
        ("/reassignments", "None"),
        ("/transactions", "There are no transactional ids"),
        ("/transactions/hanging?find=1", "None."),
    ],
)
def test_each_page_shows_its_noun(console: ConsoleClient, address: str, shown: str) -> None:
    text = console.page(address)
    assert shown in text
    assert text.count("<h1>") == 1


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("minutes=soon", "Minutes ('soon'): must be a whole number from 0 to 100000"),
        ("minutes=-1&topic=orders", "Minutes ('-1'): must be a whole number from 0 to 100000"),
        ("topic=nope", "there is no topic 'nope'"),
    ],
)
def test_a_fault_about_hanging_transactions_is_at_its_field(
    console: ConsoleClient, query: str, problem: str
) -> None:
    response = console.get(f"/transactions/hanging?find=1&{query}")
    assert response.status_code == 400
    text = html.unescape(response.text)
    name, _, typed = query.partition("&")[0].partition("=")
    field = re.search(
        rf'<label>([^<]+)<span[^>]*>([^<]+)</span> <input name="{name}"[^>]*value="{typed}"', text
    )
    assert field is not None
    assert problem in field[2]
    assert "Find</button>" in text


def test_all_addresses_are_of_tested_kinds() -> None:
    assert all(address.split("/")[1] in {"", "topics", "group", "groups", "brokers"} or address in {
        "/access", "/reassignments", "/transactions", "/transactions/hanging", "/transaction",
    } for address in PAGES)  # fmt: skip


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("/nowhere", 404),
        ("/topics/nope", 404),
        ("/topics/orders/7/0", 404),
        ("/topics/orders/0/99", 404),
        ("/group?id=nope", 404),
        ("/brokers/9", 404),
        ("/transaction?id=nope", 404),
        ("/topics/orders/messages?partition=x", 400),
        ("/topics/orders/messages?where=time&value=yesterday", 400),
        ("/topics/orders/messages?where=offset&value=-1", 400),
        ("/topics/orders/search?text=(&regex=1", 400),
        ("/topics/orders/export?format=xls", 400),
        ("/topics/bad%20name", 400),
        (f"/topics/orders/0/{'9' * 5_000}", 400),
        (f"/topics/orders/{'9' * 5_000}/0", 400),
        (f"/topics/orders/messages?partition={'9' * 5_000}", 400),
        (f"/brokers/{'1' * 5_000}", 404),
        ("/brokers/%C2%B2", 404),
    ],
)
def test_an_error_is_a_page_with_its_status(console: ConsoleClient, address: str, status: int) -> None:
    response = console.get(address)
    assert response.status_code == status
    assert 'role="alert"' in response.text


def test_a_page_changes_nothing_in_the_cluster(console: ConsoleClient, brokers: BrokerHarness) -> None:
    for address in (
        "/group?id=nope",
        "/group/reset?id=nope",
        "/topics/nope/messages",
        "/transaction?id=nope",
    ):
        assert console.get(address).status_code == 404
    text = console.page("/topics?internal=1")
    assert "__consumer_offsets" not in text
    assert "nope" not in text


def test_keys_values_and_headers_are_escaped(console: ConsoleClient, brokers: BrokerHarness) -> None:
    brokers.fill(T0, EVIL)
    for address in (
        "/topics/orders/messages",
        "/topics/orders/0/5",
        "/topics/orders/search?text=alert",
        "/topics?q=%3Cscript%3E",
        "/topics/orders/messages?where=time&value=%3Cscript%3E",
    ):
        text = console.get(address).text
        assert "<script>" not in text
        assert "<img" not in text
    assert "&lt;script&gt;alert(1)" in console.page("/topics/orders/0/5")


def test_control_characters_are_shown_as_escapes(console: ConsoleClient, brokers: BrokerHarness) -> None:
    brokers.fill(T0, "a\u202eb long enough text\x1b[31m".encode())
    text = console.page("/topics/orders/0/5")
    assert "\u202e" not in text
    assert "\\u202eb long enough text\\x1b[31m" in text


def test_topics_are_found_sorted_and_paged(serve: Callable[..., ConsoleClient]) -> None:
    brokers = BrokerHarness(1, {f"t{number:03}": 1 + number % 2 for number in range(150)})
    console = serve(brokers)
    text = console.page("/topics")
    assert "1–100 of 150" in text
    assert 'href="/topics/t099"' in text
    assert 'href="/topics/t100"' not in text
    assert "101–150 of 150" in console.page("/topics?page=2")
    assert "101–150 of 150" in console.page("/topics?page=99")
    assert "1–10 of 10" in console.page("/topics?q=T14")
    text = console.page("/topics?sort=partitions&order=desc")
    assert text.index('href="/topics/t001"') < text.index('href="/topics/t003"')
    assert 'href="/topics/t148"' not in text
    # Offsets are asked for the topics on the page only.
    asked = brokers.asked(ApiKey.LIST_OFFSETS)[-1]
    assert sum(len(topic.partitions) for topic in asked.topics) <= 200


def test_a_leaderless_partition_is_named_in_words(console: ConsoleClient, brokers: BrokerHarness) -> None:
    brokers.lose_leader(T1)
    text = console.page("/topics/orders")
    assert "no leader" in text
    assert "Some data is missing" in text
    assert ">5<" in text  # the offsets of the other partition are there
    assert "without a leader" in console.page("/")
    assert "1 without leader" in console.page("/topics")


def test_a_silent_broker_costs_its_part_only(console: ConsoleClient, brokers: BrokerHarness) -> None:
    for key in (ApiKey.LIST_OFFSETS, ApiKey.DESCRIBE_LOG_DIRS, ApiKey.LIST_GROUPS, ApiKey.FETCH):
        brokers.always(key, lambda broker, _: None if broker == 2 else SERVED)
    for address in ("/topics", "/topics/orders", "/topics/orders/messages", "/groups", "/brokers"):
        assert "Some data is missing" in console.page(address)
    assert "5 messages" in console.page("/topics/orders/messages")


def test_groups_show_lag_members_and_the_topics_they_read(
    console: ConsoleClient, brokers: BrokerHarness
) -> None:
    brokers.commit("billing", {T0: 2, T1: 5})
    text = console.page("/groups")
    assert 'href="/group?id=billing"' in text
    assert 'data-label="Total lag">3</td>' in text
    text = console.page("/group?id=billing")
    assert "Lag by partition" in text
    assert "<strong>3</strong>" in text
    assert "billing" in console.page("/topics/orders/groups")
    assert "No group fits" in console.page("/groups?q=other")
    assert "billing" in console.page("/groups?state=Empty")


@pytest.mark.parametrize("name", ["a/b", "orders/reset", ".", "..", " a", "a?b=c&d#e", "\u00e4%2F", "<b>"])
def test_a_group_may_have_any_name(console: ConsoleClient, brokers: BrokerHarness, name: str) -> None:
    brokers.commit("orders", {T0: 1})
    brokers.commit(name, {T0: 2})
    (address,) = (
        html.unescape(found)
        for found in re.findall(r'href="(/group\?id=[^"]+)"', console.page("/groups"))
        if not found.endswith("=orders")
    )
    text = console.page(address)
    assert f"<h1>{html.escape(name)}</h1>" in text
    reset = re.search(r'href="(/group/reset\?[^"]+)"', text)
    assert reset is not None
    text = console.page(html.unescape(reset[1]) + "&rule=latest")
    assert f'name="id" value="{html.escape(name)}"' in text
    assert "Dry run: 1 partition" in text


def test_lag_over_time_is_drawn_from_the_second_look_on(
    console: ConsoleClient, brokers: BrokerHarness
) -> None:
    brokers.commit("billing", {T0: 2})
    assert "<svg" not in console.page("/group?id=billing")
    brokers.fill(T0, b"v")
    text = console.page("/group?id=billing")
    assert "<polyline" in text
    assert "Total lag from 3 to 4, at most 4" in text
    assert '<span class="highest">5</span>' in text
    assert "Messages of lag: 4 at most, 4 now." in text


def test_secret_settings_have_no_value(console: ConsoleClient, monkeypatch: pytest.MonkeyPatch) -> None:
    from minikafka.clients.admin.configs import Setting
    from minikafka.wire.apis.describe_configs import ConfigSource

    rows = [Setting("ssl.key.password", "hunter2", ConfigSource.STATIC_BROKER, True, True)]
    monkeypatch.setattr("minikafka.clients.admin.admin.describe_configs", lambda *_: rows)
    text = console.page("/brokers/1")
    assert "secret, not shown" in text
    assert "hunter2" not in text


def test_partitions_with_problems_can_be_shown_alone(console: ConsoleClient, brokers: BrokerHarness) -> None:
    brokers.lose_leader(TopicPartition("orders", 1))
    text = console.page("/topics/orders?problems=1")
    assert "1–1 of 1" in text


def test_groups_in_zookeeper_stand_beside_those_at_brokers(
    brokers: BrokerHarness, serve: Callable[..., ConsoleClient]
) -> None:
    store = brokers.zookeeper.connect()
    ZooKeeperGroups(store).set_offsets("old", {T0: 3})
    brokers.commit("billing", {T0: 2})
    console = serve(brokers, store=store)
    text = console.page("/groups")
    assert "ZooKeeper" in text
    assert text.index('href="/group?id=billing"') < text.index('href="/group?id=old"')
    text = console.page("/group?id=old")
    assert "In ZooKeeper: Empty, 0 consumers" in text
    assert 'data-label="Lag">2</td>' in text
    assert "Lag by partition" in console.page("/group?id=billing")
    assert console.get("/group?id=nope").status_code == 404
    assert "Dry run: 1 partition" in console.page("/group/reset?id=old&rule=earliest")


def test_brokers_that_are_too_old_are_named(console: ConsoleClient, brokers: BrokerHarness) -> None:
    brokers.unknown |= {ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_LOG_DIRS}
    response = console.get("/transactions")
    assert response.status_code == 501
    assert "Kafka 3.0" in response.text
    assert "no sizes from broker" in console.page("/topics/orders")


def test_what_an_open_transaction_holds_back_is_beside_the_lag(
    console: ConsoleClient, brokers: BrokerHarness
) -> None:
    records = [Record(None, b"v")] * 3
    batch = build_batch(records, producer_id=7, producer_epoch=0, transactional=True)
    brokers.logs[T0].append(batch)
    brokers.commit("billing", {T0: 2, T1: 3})
    held = '3 held back by an <a href="/transactions">open transaction</a>'
    text = console.page("/group?id=billing")
    assert "<strong>6</strong>" in text
    assert text.count("held back") == text.count(held) == 1
    assert console.page("/topics/orders").count(held) == 1
    brokers.commit("billing", {T0: 7})
    assert '1 held back by an <a href="/transactions">' in console.page("/group?id=billing")


def test_a_search_without_a_registry_has_no_word_of_schemas(console: ConsoleClient) -> None:
    assert "decoded by a schema" not in console.page("/topics/orders/search?text=id")


def test_links_name_the_partition_also_if_it_is_zero(console: ConsoleClient) -> None:
    assert 'href="/topics/orders/messages?partition=0"' in console.page("/topics/orders")
