"""The checks before a page: hosts, forms, changes and logins."""

from __future__ import annotations

import html
import re
from collections.abc import Callable

import pytest

from minikafka.base.errors import AuthenticationFailed, ConfigError, ErrorCode
from minikafka.base.ids import TopicPartition
from minikafka.clients.admin.zookeeper.groups import ZooKeeperGroups
from minikafka.clients.network.cluster import ClusterClient
from minikafka.console.sessions import LOGINS_OF_AN_ADDRESS_MAX, LoginRefused, Sessions
from minikafka.console.settings import FORM_BYTES_MAX, ConsoleSettings, Login
from minikafka.wire.api import ApiKey
from tests.support.broker_harness import BrokerHarness, produce_error
from tests.unit.console.conftest import T0, ConsoleClient

TOKEN = "the-token-of-the-console"
Serve = Callable[..., ConsoleClient]


@pytest.fixture
def changing(brokers: BrokerHarness, serve: Serve) -> ConsoleClient:
    """A console with --allow-changes."""
    return serve(brokers, allow_changes=True)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:9090", 200),
        ("LOCALHOST", 200),
        ("127.0.0.1:9090", 200),
        ("[::1]:9090", 200),
        ("192.0.2.7:9090", 200),
        ("console.example.com", 200),
        ("attacker.example.com:9090", 421),
        ("127.0.0.1.example.com", 421),
        ("localhost.example.com", 421),
        ("", 421),
    ],
)
def test_only_addresses_and_known_names_are_served(
    brokers: BrokerHarness, serve: Serve, host: str, status: int
) -> None:
    console = serve(brokers, allowed_hosts=("console.example.com",))
    assert console.get("/", headers={"host": host}).status_code == status


def test_a_page_of_another_site_can_only_link_to_the_console(console: ConsoleClient) -> None:
    other = {"sec-fetch-site": "cross-site"}
    search = "/topics/orders/search?text=a"
    assert console.get(search, headers={**other, "sec-fetch-mode": "no-cors"}).status_code == 403
    assert console.get("/topics", headers={**other, "sec-fetch-mode": "navigate"}).status_code == 200
    same = {"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}
    assert console.get("/topics", headers=same).status_code == 200


def test_every_response_restricts_the_browser(console: ConsoleClient) -> None:
    for address in ("/", "/nowhere", "/static/console.css", "/topics/orders/export"):
        headers = console.get(address).headers
        assert "default-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["cache-control"] == "no-store"


def test_pages_have_no_inline_script_or_style(console: ConsoleClient, brokers: BrokerHarness) -> None:
    brokers.commit("g", {T0: 1})
    for address in ("/", "/topics", "/topics/orders/tail", "/topics/orders/messages", "/group?id=g"):
        text = console.page(address)
        assert "style=" not in text
        assert "<style" not in text
        assert "onclick" not in text
        assert text.count("<script") == text.count("<script src=")


def test_the_cookie_is_strict_and_hidden_from_scripts(console: ConsoleClient) -> None:
    cookie = console.get("/").headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert cookie.startswith("minikafka_console_9090=")
    assert "set-cookie" not in console.get("/").headers


@pytest.mark.parametrize("address", ["/topics/orders/produce", "/group/reset?id=g", "/reassignments/elect"])
def test_a_read_only_console_refuses_every_change(console: ConsoleClient, address: str) -> None:
    response = console.post(address, {"csrf": "x"})
    assert response.status_code == 403
    assert "--allow-changes" in response.text


def test_a_read_only_console_has_no_form_to_produce(console: ConsoleClient) -> None:
    assert console.get("/topics/orders/produce").status_code == 403
    assert "/produce" not in console.page("/topics/orders")
    assert "read-only" in console.page("/")


def test_a_message_is_produced_with_key_and_headers(changing: ConsoleClient, brokers: BrokerHarness) -> None:
    form = {
        "csrf": changing.csrf("/topics/orders/produce"),
        "partition": "1",
        "key": "k",
        "value": '{"a":\r\n1}',
        "headers": "trace: abc\r\nempty:",
    }
    response = changing.post("/topics/orders/produce", form)
    assert response.status_code == 303
    assert response.headers["location"] == "/topics/orders/produce?done=1.5"
    text = changing.page("/topics/orders/1/5")
    assert "trace" in text
    assert changing.get("/topics/orders/1/5/value").content == b'{"a":\n1}'
    assert changing.get("/topics/orders/1/5/key").content == b"k"
    assert "partition 1, offset 5" in changing.page("/topics/orders/produce?done=1.5")


@pytest.mark.parametrize(
    "form", [{"partition": "x"}, {"value_kind": "base64", "value": "a"}, {"headers": "no colon"}]
)
def test_a_message_that_cannot_be_sent_is_shown_again(changing: ConsoleClient, form: dict[str, str]) -> None:
    token = changing.csrf("/topics/orders/produce")
    response = changing.post("/topics/orders/produce", {"csrf": token, "key": "my key"} | form)
    assert response.status_code == 400
    assert 'value="my key"' in response.text


def test_a_message_that_the_brokers_refuse_is_shown_again(
    changing: ConsoleClient, brokers: BrokerHarness
) -> None:
    token = changing.csrf("/topics/orders/produce")
    brokers.always(ApiKey.PRODUCE, produce_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    response = changing.post("/topics/orders/produce", {"csrf": token, "value": "my value"})
    assert response.status_code == 403
    assert "my value" in response.text
    assert "TOPIC_AUTHORIZATION_FAILED" in response.text


def test_the_page_of_an_error_leads_to_all_others(console: ConsoleClient) -> None:
    text = console.get("/topics/nope").text
    assert 'href="/groups"' in text
    assert "read-only" in text


@pytest.mark.parametrize("token", ["", "0" * 64, "é"])
def test_a_form_without_the_token_of_its_session_is_refused(changing: ConsoleClient, token: str) -> None:
    changing.page("/")
    response = changing.post("/topics/orders/produce", {"csrf": token, "value": "v"})
    assert response.status_code == 403
    assert "form has expired" in response.text


def test_the_token_of_another_session_is_refused(brokers: BrokerHarness, serve: Serve) -> None:
    console = serve(brokers, allow_changes=True)
    token = console.csrf("/topics/orders/produce")
    console.http.cookies.clear()
    assert console.post("/topics/orders/produce", {"csrf": token, "value": "v"}).status_code == 403


def test_a_form_of_another_origin_is_refused(changing: ConsoleClient) -> None:
    form = {"csrf": changing.csrf("/topics/orders/produce"), "value": "v"}
    for origin in ("http://example.com", "null", "http://localhost:9091"):
        response = changing.post("/topics/orders/produce", form, headers={"origin": origin})
        assert response.status_code == 403
    response = changing.post("/topics/orders/produce", form, headers={"origin": "http://localhost:9090"})
    assert response.status_code == 303


def test_a_form_through_a_proxy_with_an_allowed_name_is_taken(brokers: BrokerHarness, serve: Serve) -> None:
    console = serve(brokers, allow_changes=True, allowed_hosts=("Example.com:443",))
    form = {"csrf": console.csrf("/topics/orders/produce"), "value": "v"}
    headers = {"origin": "https://example.com"}
    assert console.post("/topics/orders/produce", form, headers=headers).status_code == 303
    assert console.get("/", headers={"host": "example.com"}).status_code == 200


def test_a_form_that_is_too_large_is_refused(changing: ConsoleClient) -> None:
    form = {"csrf": changing.csrf("/topics/orders/produce"), "value": "v" * FORM_BYTES_MAX}
    response = changing.post("/topics/orders/produce", form)
    assert response.status_code == 400
    assert "at most" in response.text


def test_a_body_that_is_no_form_is_refused(changing: ConsoleClient) -> None:
    changing.page("/")
    response = changing.http.post("/topics/orders/produce", json={"csrf": "x"})
    assert response.status_code == 400


def test_a_reset_is_shown_first_and_made_after_the_name_was_typed(
    changing: ConsoleClient, brokers: BrokerHarness
) -> None:
    brokers.commit("billing", {T0: 4, TopicPartition("orders", 1): 5})
    text = changing.page("/group/reset?id=billing&rule=shift&value=-3")
    assert "Dry run: 2 partitions" in text
    assert brokers.committed("billing") == {T0: 4, TopicPartition("orders", 1): 5}
    form = {
        "csrf": changing.csrf("/group/reset?id=billing&rule=shift&value=-3"),
        "plan": "orders,0,1\norders,1,2",
    }
    response = changing.post("/group/reset?id=billing", form | {"confirm": "billing"})
    assert response.status_code == 303
    assert brokers.committed("billing") == {T0: 1, TopicPartition("orders", 1): 2}
    assert re.search(r'role="status"><p>2 offsets set\.', changing.page(response.headers["location"]))


def test_a_mistyped_group_name_keeps_the_dry_run(changing: ConsoleClient, brokers: BrokerHarness) -> None:
    brokers.commit("billing", {T0: 4})
    text = changing.page("/group/reset?id=billing&rule=shift&value=-3&topic=orders:0")
    address = html.unescape(re.findall(r'method="post" action="(/group/reset[^"]+)"', text)[0])
    form = {"csrf": changing.csrf("/topics/orders/produce"), "plan": "orders,0,1", "confirm": "biling<"}
    response = changing.post(address, form)
    assert response.status_code == 400
    assert "Nothing was changed" in response.text
    assert 'value="biling&lt;" aria-invalid="true"' in response.text
    assert "Dry run: 1 partition" in response.text
    assert '<option value="shift" selected>' in response.text
    assert brokers.committed("billing") == {T0: 4}


def test_the_offsets_that_were_shown_are_set_after_a_mistyped_name(
    changing: ConsoleClient, brokers: BrokerHarness
) -> None:
    brokers.commit("billing", {T0: 4})
    text = changing.page("/group/reset?id=billing&rule=latest")
    address = html.unescape(re.findall(r'method="post" action="(/group/reset[^"]+)"', text)[0])
    brokers.fill(T0, b"later")
    form = {"csrf": changing.csrf("/topics/orders/produce"), "plan": shown_plan(text), "confirm": "biling"}
    text = changing.post(address, form).text
    assert "<strong>5</strong>" in text
    response = changing.post(address, form | {"plan": shown_plan(text), "confirm": "billing"})
    assert response.status_code == 303
    assert brokers.committed("billing") == {T0: 5}


def shown_plan(text: str) -> str:
    (plan,) = re.findall(r'name="plan" value="([^"]*)"', text)
    return html.unescape(plan)


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        ("orders,0,9", "Nothing was changed: orders-0 has no offset 9 any more"),
        ("orders,9,1", "orders-9"),
        ("orders,0,-1", "plan"),
        ("", "start again with the dry run"),
    ],
    ids=["offset", "partition", "number", "empty"],
)
def test_a_plan_that_does_not_fit_the_logs_changes_nothing(
    changing: ConsoleClient, brokers: BrokerHarness, plan: str, problem: str
) -> None:
    brokers.commit("billing", {T0: 4})
    form = {"csrf": changing.csrf("/topics/orders/produce"), "plan": plan, "confirm": "billing"}
    response = changing.post("/group/reset?id=billing&rule=latest", form)
    assert response.status_code >= 400
    assert problem in response.text
    assert brokers.committed("billing") == {T0: 4}


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("rule=offset&value=x", "Offset, time, duration or number (&#39;x&#39;): must be a whole number"),
        ("rule=time&value=noon", "must be a time"),
        ("rule=time&value=2100-01-01", "is in the future; it is "),
        ("rule=back&value=1", "duration such as 30m, 1h"),
        ("rule=earliest&value=3", "is not used in a reset to the start of the log: choose an offset"),
        ("rule=latest&value=1h", "is not used in a reset to the end of the log: choose an offset"),
        ("rule=offset", "Offset, time, duration or number (empty)"),
        ("rule=magic", "must be one of"),
        ("rule=earliest&topic=orders:9", "orders-9"),
        ("rule=earliest&topic=nope", "nope"),
    ],
)
def test_a_reset_that_cannot_be_says_why(
    changing: ConsoleClient, brokers: BrokerHarness, query: str, problem: str
) -> None:
    brokers.commit("billing", {T0: 4})
    response = changing.get(f"/group/reset?id=billing&{query}")
    assert response.status_code == 400
    assert problem in response.text


def test_preferred_leaders_are_elected_by_a_form(serve: Serve) -> None:
    brokers = BrokerHarness(2, {"orders": 1}, replicas=2)
    brokers.stop(1)
    brokers.start(1)
    brokers.advance(1_000)
    assert brokers.leader(T0) == 2
    console = serve(brokers, allow_changes=True)
    assert "orders-0" in console.page("/reassignments")
    response = console.post("/reassignments/elect", {"csrf": console.csrf("/reassignments")})
    assert response.status_code == 303
    assert "1 leader elected" in console.page(response.headers["location"])
    assert brokers.leader(T0) == 1


# --- logins


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "console.example.com"])
def test_a_host_that_others_reach_needs_a_login(host: str) -> None:
    with pytest.raises(ConfigError, match="--login token"):
        ConsoleSettings(lambda *_: None, host).check()  # type: ignore[arg-type, return-value]
    ConsoleSettings(lambda *_: None, host, login=Login.TOKEN).check()  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "::1", "[::1]"])
def test_loopback_needs_no_login(host: str) -> None:
    ConsoleSettings(lambda *_: None, host).check()  # type: ignore[arg-type, return-value]


@pytest.fixture
def guarded(brokers: BrokerHarness, serve: Serve) -> ConsoleClient:
    """A console with a token."""
    return serve(brokers, login=Login.TOKEN, token=TOKEN, allow_changes=True)


def log_in(console: ConsoleClient, address: str = "/login", **form: str) -> object:
    return console.post(address, {"csrf": console.csrf(address), **form})


def test_a_page_asks_for_the_token_and_goes_on_to_itself(guarded: ConsoleClient) -> None:
    response = guarded.get("/topics?q=a")
    assert response.status_code == 303
    address = response.headers["location"]
    assert address == "/login?next=%2Ftopics%3Fq%3Da"
    response = log_in(guarded, address, token=TOKEN)
    assert (response.status_code, response.headers["location"]) == (303, "/topics?q=a")  # type: ignore[attr-defined]
    assert "Log out" in guarded.page("/topics?q=a")


@pytest.mark.parametrize("target", ["//example.com", "/\\example.com", "https://example.com", "javascript:1"])
def test_a_login_never_goes_on_to_another_site(guarded: ConsoleClient, target: str) -> None:
    response = guarded.post(f"/login?next={target}", {"csrf": guarded.csrf("/login"), "token": TOKEN})
    assert response.headers["location"] == "/"


def test_a_wrong_token_is_refused(guarded: ConsoleClient) -> None:
    response = log_in(guarded, token="another token")
    assert response.status_code == 403  # type: ignore[attr-defined]
    assert "not the token" in response.text  # type: ignore[attr-defined]
    assert guarded.get("/").status_code == 303


def test_a_session_has_another_id_after_the_login(guarded: ConsoleClient) -> None:
    guarded.page("/login")
    before = guarded.http.cookies["minikafka_console_9090"]
    log_in(guarded, token=TOKEN)
    assert guarded.http.cookies["minikafka_console_9090"] != before


def test_after_the_logout_a_login_is_needed_again(guarded: ConsoleClient) -> None:
    log_in(guarded, token=TOKEN)
    assert guarded.post("/logout", {"csrf": guarded.csrf("/")}).status_code == 303
    assert guarded.get("/").status_code == 303


def test_without_a_login_no_change_and_no_event_is_served(guarded: ConsoleClient) -> None:
    assert guarded.get("/topics/orders/tail/events").status_code == 401
    assert guarded.post("/topics/orders/produce", {"value": "v"}).status_code == 401


def test_logins_from_one_address_do_not_keep_others_out(brokers: BrokerHarness) -> None:
    checks: list[int] = []

    def check(timeout_ms: int) -> bool:
        checks.append(timeout_ms)
        if len(checks) < LOGINS_OF_AN_ADDRESS_MAX:
            attempt("a")
        elif len(checks) == LOGINS_OF_AN_ADDRESS_MAX:
            with pytest.raises(LoginRefused, match="too many logins"):
                attempt("a")
            attempt("b")
        return True

    def connect(user: str | None, password: str | None) -> ClusterClient:
        client = brokers.client(creates_topics=False)
        client.check_login = check  # type: ignore[method-assign]
        return client

    def attempt(address: str) -> None:
        sessions.log_in(user="alice", password="right", address=address)

    sessions = Sessions(ConsoleSettings(connect, login=Login.SASL))
    attempt("a")
    attempt("a")
    assert len(checks) == LOGINS_OF_AN_ADDRESS_MAX + 2
    sessions.close()


def test_users_of_the_cluster_log_in_with_their_own_access(brokers: BrokerHarness, serve: Serve) -> None:
    connected: list[tuple[str | None, str | None]] = []

    def connect(user: str | None, password: str | None) -> object:
        connected.append((user, password))
        client = brokers.client(creates_topics=False)
        if password != "right":

            def refuse(timeout_ms: int) -> bool:
                raise AuthenticationFailed("broker 1", "wrong", ErrorCode.SASL_AUTHENTICATION_FAILED)

            client.check_login = refuse  # type: ignore[method-assign]
        return client

    store = brokers.zookeeper.connect()
    ZooKeeperGroups(store).set_offsets("of-nobody", {T0: 1})
    console = serve(brokers, login=Login.SASL, connect=connect, store=store)
    assert connected == []
    response = log_in(console, user="alice", password="wrong")
    assert response.status_code == 403  # type: ignore[attr-defined]
    assert "refuses this user or password" in response.text  # type: ignore[attr-defined]
    assert "wrong" not in response.text  # type: ignore[attr-defined]
    log_in(console, user="alice", password="right")
    assert "alice" in console.page("/")
    assert connected == [("alice", "wrong"), ("alice", "right")]
    assert "of-nobody" not in console.page("/groups")  # ZooKeeper would not ask for her rights
