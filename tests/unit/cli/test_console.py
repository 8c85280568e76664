"""``minikafka console``: what keeps it from starting."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.broker_harness import BrokerHarness
from tests.support.command_line import CommandLine


@pytest.fixture(autouse=True)
def brokers(serve: Callable[[BrokerHarness], BrokerHarness]) -> BrokerHarness:
    return serve(BrokerHarness(1, {"t": 1}))


def test_the_extra_is_named_where_it_is_missing(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "minikafka.console.server", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert cli.run("console") == 1
    assert "needs uvicorn; install it with: pip install 'minikafka[console]'" in cli.err


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--host", "0.0.0.0"), "--host='0.0.0.0': is not loopback, so a login is needed"),
        (("--login", "magic"), "--login='magic'"),
        (("--login", "sasl"), "sasl.mechanism='none': has no users with passwords"),
        (("--port", "70000"), "--port"),
        (
            ("--schema-registry", "kafka:8081"),
            "--schema-registry='kafka:8081': must begin with http:// or https://",
        ),
        (("--login", "sasl", "--zookeeper", "h:1"), "--zookeeper='h:1': conflicts with --login sasl"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    cli: CommandLine, options: tuple[str, ...], problem: str
) -> None:
    assert cli.run("console", *options) == 2
    assert problem in cli.err


def test_a_short_token_is_refused(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINIKAFKA_CONSOLE_TOKEN", "secret")
    assert cli.run("console", "--login", "token") == 2
    assert "at least 16 characters" in cli.err
    assert "secret" not in cli.err


def test_a_port_that_is_taken_is_named(cli: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert cli.run("console", "--port", str(port)) == 1
    assert cli.err.splitlines()[-1:] == [
        f"minikafka: cannot listen at 127.0.0.1:{port}: Address already in use; choose another --port"
    ]


def test_a_file_without_a_user_serves_users_who_log_in(tmp_path: Path) -> None:
    from minikafka.cli.connection.command_config import CommandConfig

    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n")
    security = CommandConfig.read(str(file), own_login=False).security.as_user("alice", 'a"b\\c')
    assert security.sasl is not None
    options = security.sasl.jaas.options
    assert (options["username"].value, options["password"].value) == ("alice", 'a"b\\c')
