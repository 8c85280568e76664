"""``clients/network/bootstrap``: accepted lists of addresses, and the errors of others."""

from __future__ import annotations

import pytest

from minikafka.base.endpoints import SecurityProtocol
from minikafka.base.errors import ConfigError
from minikafka.clients.network.bootstrap import HostPort, parse_bootstrap


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("localhost:9092", [("localhost", 9092)]),
        (" a:1 , b:2 ,", [("a", 1), ("b", 2)]),
        ("a:1,a:1,b:1", [("a", 1), ("b", 1)]),
        ("[::1]:9092", [("::1", 9092)]),
        ("PLAINTEXT://h.example:65535", [("h.example", 65535)]),
    ],
)
def test_lists_are_parsed_in_order_and_each_address_once(text: str, wanted: list[tuple[str, int]]) -> None:
    assert list(parse_bootstrap(text)) == wanted


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no address"),
        (" , ", "no address"),
        ("localhost", "'localhost' has no port"),
        ("a:1,b", "'b' has no port"),
        (":9092", "has no host"),
        ("a:0", "from 1 to 65535"),
        ("a:65536", "from 1 to 65535"),
        ("a:port", "from 1 to 65535"),
        ("a:²", "from 1 to 65535"),
        ("::1:9092", "is not an address"),
        ("http://a:1", "HTTP is not a security protocol: expected PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ("http://a:1/x", "HTTP is not a security protocol|number"),
    ],
)
def test_a_bad_entry_is_named_with_what_is_wanted(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as caught:
        parse_bootstrap(text, "kafka.bootstrap.servers")
    assert caught.value.name == "kafka.bootstrap.servers"
    assert caught.value.value == text


def test_entry_with_another_security_protocol_names_the_setting() -> None:
    assert parse_bootstrap("SSL://a:1,a:2", protocol=SecurityProtocol.SSL) == parse_bootstrap("a:1,a:2")
    with pytest.raises(ConfigError, match=r"'SSL://a:1' conflicts with security\.protocol=PLAINTEXT"):
        parse_bootstrap("SSL://a:1", protocol=SecurityProtocol.PLAINTEXT)


def test_a_password_in_an_entry_is_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_bootstrap("alice:tiger@localhost:9092")
    assert "tiger" not in str(caught.value)


def test_addresses_print_as_they_are_written() -> None:
    assert str(HostPort("::1", 9)) == "[::1]:9"
    assert str(HostPort("h", 9)) == "h:9"
