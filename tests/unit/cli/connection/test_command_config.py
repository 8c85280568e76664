"""``--command-config`` and ``MINIKAFKA_CONFIG``: the properties with which commands connect."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from minikafka.base.config.property_files import write_properties
from minikafka.base.endpoints import SecurityProtocol
from minikafka.base.errors import ConfigError
from minikafka.cli.commands import app
from minikafka.cli.connection import connect
from minikafka.cli.connection.command_config import CommandConfig, security_properties
from minikafka.clients.network.cluster import ClusterClient
from tests.support.command_line import CommandLine
from tests.support.tls import client_properties

LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": 'x.PlainLoginModule required username="alice" password="won;der=\\"land";',
}


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tmp_path / "client.properties")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """The bootstrap list and the arguments of each client that commands make; none of them connects."""
    found: list[tuple[str, dict[str, Any]]] = []
    of_the_class = ClusterClient.__init__

    def init(self: ClusterClient, bootstrap: str, **options: Any) -> None:
        found.append((bootstrap, options))
        of_the_class(self, bootstrap, **options)

    monkeypatch.setattr(ClusterClient, "__init__", init)
    monkeypatch.setattr(ClusterClient, "metadata", lambda *_, **__: None)
    monkeypatch.delenv("MINIKAFKA_BOOTSTRAP", raising=False)
    return found


def commands(command: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every command with its path."""
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, f"{path} {name}")
    if not hasattr(command, "commands"):
        yield path, command


def test_every_command_that_connects_takes_a_command_config() -> None:
    options = {
        path: {option for parameter in command.params for option in parameter.opts}
        for path, command in commands(typer.main.get_command(app))
    }
    assert len([path for path, given in options.items() if "--bootstrap" in given]) > 15
    without = [
        path
        for path, given in options.items()
        if given.isdisjoint({"--bootstrap", "--zookeeper"}) == ("--command-config" in given)
    ]
    # They have the properties of brokers, and of a profile.
    assert without == [" up", " profile create"]


def test_file_says_how_to_connect_and_where(file: str, made: list[tuple[str, dict[str, Any]]]) -> None:
    write_properties(file, {**LOGIN, "bootstrap.servers": "h:1", "client.id": "me", "acks": "all"})
    with connect.cluster_client(None, None, file):
        pass
    ((servers, options),) = made
    assert servers == "h:1"
    assert (options["client_id"], options["option"]) == ("me", f"{file}: bootstrap.servers")
    assert options["security"].protocol is SecurityProtocol.SASL_PLAINTEXT
    jaas = options["security"].sasl.jaas
    assert jaas.options["password"].value == 'won;der="land'


def test_option_and_variable_beat_the_servers_of_the_file(
    file: str, made: list[tuple[str, dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_properties(file, {"bootstrap.servers": "h:1"})
    with connect.cluster_client("other:2", None, file):
        pass
    monkeypatch.setenv("MINIKAFKA_BOOTSTRAP", "env:3")
    with connect.cluster_client("env:3", None, file):
        pass
    assert [(servers, options["option"]) for servers, options in made] == [
        ("other:2", "--bootstrap"),
        ("env:3", "MINIKAFKA_BOOTSTRAP"),
    ]


def test_every_fault_of_the_file_is_in_one_line_with_its_name(file: str) -> None:
    write_properties(file, {"security.protocol": "SSLL", "request.timeout.ms": "soon", "client.id": "ü"})
    with pytest.raises(ConfigError) as refused:
        CommandConfig.read(file)
    text = str(refused.value)
    assert f"{file}: security.protocol='SSLL': must be one of PLAINTEXT, SSL" in text
    assert f"{file}: request.timeout.ms='soon': must be a whole number" in text
    assert f"{file}: client.id=" in text


def test_secret_of_the_file_is_in_no_error(file: str) -> None:
    write_properties(file, LOGIN | {"sasl.mechanism": "SCRAM-SHA-256"})
    with pytest.raises(ConfigError) as refused:
        CommandConfig.read(file)
    assert "not that of sasl.mechanism=SCRAM-SHA-256" in str(refused.value)
    assert "won;der" not in str(refused.value)


@pytest.mark.parametrize("variable", [False, True])
def test_file_that_cannot_be_read_names_the_option(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, variable: bool
) -> None:
    if variable:
        monkeypatch.setenv("MINIKAFKA_CONFIG", "/nowhere/client.properties")
    given = () if variable else ("--command-config", "/nowhere/client.properties")
    assert cli.run("topic", "list", *given) == 2
    name = "MINIKAFKA_CONFIG" if variable else "--command-config"
    expected = f"minikafka: {name}='/nowhere/client.properties': cannot be read: No such file or directory\n"
    assert cli.err == expected


def test_settings_without_effect_are_warnings(file: str, caplog: pytest.LogCaptureFixture) -> None:
    write_properties(file, {**client_properties(), "sasl.mechansim": "PLAIN", "group.id": "g"})
    CommandConfig.read(file)
    assert caplog.messages == [
        "property ssl.truststore.type has no effect with security.protocol=PLAINTEXT",
        "property ssl.truststore.certificates has no effect with security.protocol=PLAINTEXT",
        "property sasl.mechansim has no effect with security.protocol=PLAINTEXT",
    ]


def test_name_that_no_client_knows_is_a_warning(file: str, caplog: pytest.LogCaptureFixture) -> None:
    misspelt = {
        "security.protcol": "SASL_SSL",
        "kafka.acks": "all",
        "kafka.sasl.mechanism": "PLAIN",
        "foo.bar": "s3cr3t",
    }
    write_properties(file, misspelt)
    CommandConfig.read(file)
    security_properties(file)
    assert sorted(caplog.messages) == [
        f"property foo.bar in {file} is not valid",
        f"property kafka.acks in {file} is not valid; did you mean acks?",
        f"property kafka.sasl.mechanism in {file} is not valid; did you mean sasl.mechanism?",
        f"property security.protcol in {file} is not valid; did you mean security.protocol?",
    ]


def test_names_of_all_clients_are_passed_over(file: str, caplog: pytest.LogCaptureFixture) -> None:
    others = (
        "acks",
        "connections.max.idle.ms",
        "enable.metrics.push",
        "security.providers",
        "group.id",
        "key.deserializer",
        "zookeeper.connect",
        "serializer.class",
        "socket.timeout.ms",
    )
    write_properties(file, dict.fromkeys((*others, "fetch.max.bytes", "external.x"), "1"))
    CommandConfig.read(file)
    assert caplog.messages == []


def test_security_alone_is_passed_on_to_a_consumer_of_zookeeper(file: str) -> None:
    assert security_properties(None) == {}
    write_properties(file, {**LOGIN, "bootstrap.servers": "h:1", "group.id": "g"})
    assert security_properties(file) == LOGIN


def test_brokers_registered_in_zookeeper_are_those_with_the_protocol(
    file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    @contextlib.contextmanager
    def client(bootstrap: str, data_dir: object, command_config: str | None) -> Iterator[str]:
        yield f"{bootstrap} {command_config}"

    monkeypatch.setattr(connect, "cluster_client", client)
    monkeypatch.setattr(
        "minikafka.registry.brokers.addresses_with",
        lambda protocol, store: asked.append(protocol) or ["h:1", "h:2"],
    )
    write_properties(file, LOGIN)
    with contextlib.ExitStack() as stack:
        found: Any = connect._with_registered_brokers("store", "z:1", file, stack)  # type: ignore[arg-type]
    assert found.cluster == f"h:1,h:2 {file}"
    assert asked == [SecurityProtocol.SASL_PLAINTEXT]
