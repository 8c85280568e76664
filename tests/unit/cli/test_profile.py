"""``minikafka profile``, and the profiles with which commands connect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minikafka.base.config.property_files import write_properties
from minikafka.base.endpoints import SecurityProtocol
from minikafka.cli.connection.profiles import Profile
from minikafka.clients.network.cluster import ClusterClient
from tests.support.command_line import CommandLine

LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": 'x.PlainLoginModule required username="alice" password="wonderland";',
}


class Reached(Exception):
    """Raised in place of a connection."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in ("MINIKAFKA_PROFILE", "MINIKAFKA_BOOTSTRAP", "MINIKAFKA_CONFIG"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("MINIKAFKA_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config"


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, SecurityProtocol]]:
    """The brokers that commands connect to, and their security protocols."""
    found: list[tuple[str, SecurityProtocol]] = []

    def init(self: ClusterClient, bootstrap: str, **options: Any) -> None:
        found.append((bootstrap, options["security"].protocol))
        raise Reached

    monkeypatch.setattr(ClusterClient, "__init__", init)
    return found


@pytest.fixture
def two(cli: CommandLine, tmp_path: Path) -> None:
    """The profiles prod, which logs in, and test."""
    file = tmp_path / "client.properties"
    write_properties(str(file), LOGIN)
    assert cli.run("profile", "create", "prod", "-b", "prod:9092", "--from-file", str(file)) == 0, cli.err
    assert cli.run("profile", "create", "test", "--set", "bootstrap.servers=test:1") == 0, cli.err


def test_profiles_are_made_listed_used_and_deleted(two: None, cli: CommandLine, home: Path) -> None:
    assert cli.run("profile", "use", "prod") == 0
    assert cli.run("profile", "list") == 0
    assert [line.split() for line in cli.lines] == [
        ["PROFILE", "IN", "USE", "BOOTSTRAP", "SECURITY"],
        ["prod", "yes", "prod:9092", "SASL_PLAINTEXT"],
        ["test", "no", "test:1", "PLAINTEXT"],
    ]
    file = home / "profiles" / "prod.properties"
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert cli.run("profile", "show") == 0
    assert cli.lines[0] == f"prod: {file}"
    assert "wonderland" not in cli.out
    assert cli.run("profile", "delete", "prod") == 0
    assert cli.run("profile", "list", "--format", "json") == 0
    assert [(row["profile"], row["in_use"]) for row in cli.rows] == [("test", False)]
    assert cli.run("profile", "show") == 2


def test_the_profile_in_use_is_where_nothing_else_names_a_cluster(
    two: None, cli: CommandLine, reached: list[tuple[str, SecurityProtocol]], monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.run("profile", "use", "prod")
    cli.run("topic", "list")
    cli.run("consume", "t")
    cli.run("group", "list")
    cli.run("topic", "list", "-b", "other:1")
    monkeypatch.setenv("MINIKAFKA_BOOTSTRAP", "variable:1")
    cli.run("topic", "list")
    prod = ("prod:9092", SecurityProtocol.SASL_PLAINTEXT)
    plain = SecurityProtocol.PLAINTEXT
    assert reached == [prod, prod, prod, ("other:1", plain), ("variable:1", plain)]
    monkeypatch.delenv("MINIKAFKA_BOOTSTRAP")
    assert cli.run("profile", "clear") == 0
    cli.run("topic", "list")
    assert reached[-1] == ("127.0.0.1:9092", plain)


def test_a_named_profile_wins_over_the_environment(
    two: None, cli: CommandLine, reached: list[tuple[str, SecurityProtocol]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINIKAFKA_BOOTSTRAP", "variable:1")
    monkeypatch.setenv("MINIKAFKA_PROFILE", "test")
    cli.run("--profile", "prod", "topic", "list")
    cli.run("topic", "list", "--profile", "prod")
    cli.run("topic", "list", "--profile=prod", "--bootstrap", "other:1")
    cli.run("topic", "list")
    login, plain = SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.PLAINTEXT
    assert reached == [("prod:9092", login), ("prod:9092", login), ("other:1", login), ("variable:1", plain)]


LIST = "topic list --profile"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (f"{LIST} nosuch", "--profile='nosuch': there is no such profile (there are: prod, test)"),
        (f"{LIST} ../x", "--profile='../x': must be a name of letters"),
        (f"{LIST} prod --data-dir d", "--profile='prod': conflicts with --data-dir d"),
        (f"{LIST} prod --command-config f", "--profile='prod': conflicts with --command-config f"),
        ("profile create prod -b h:1", "NAME='prod': there is a profile of this name"),
        ("profile create a/b -b h:1", "NAME='a/b': must be a name"),
        ("profile create new", "--bootstrap: required, unless the file has bootstrap.servers"),
        ("profile create new -b h:1 --set security.protocol=x", "profile new: security.protocol"),
        ("profile use nosuch", "NAME='nosuch': there is no such profile"),
        ("profile delete nosuch", "NAME='nosuch': there is no such profile"),
    ],
)
def test_what_cannot_be_is_told(two: None, cli: CommandLine, command: str, message: str) -> None:
    assert cli.run(*command.split()) == 2
    assert message in cli.err
    assert cli.err.count("\n") == 1


def test_a_property_that_no_client_knows_is_told_at_once(
    cli: CommandLine, caplog: pytest.LogCaptureFixture
) -> None:
    assert cli.run("profile", "create", "bad", "-b", "h:1", "--set", "clientid=x") == 0
    assert caplog.messages == ["property clientid in profile bad is not valid; did you mean client.id?"]


def test_secrets_that_others_can_read_are_told(
    two: None, cli: CommandLine, home: Path, reached: list[tuple[str, SecurityProtocol]]
) -> None:
    for name in ("prod", "test"):
        (home / "profiles" / f"{name}.properties").chmod(0o644)
    cli.run("topic", "list", "--profile", "test")
    assert "chmod" not in cli.err
    cli.run("topic", "list", "--profile", "prod")
    assert "prod.properties has secrets that other users can read; run chmod 600" in cli.err


def test_settings_are_where_the_desktop_keeps_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MINIKAFKA_CONFIG_HOME")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert Profile("a").path == tmp_path / "minikafka" / "profiles" / "a.properties"
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Profile("a").path == tmp_path / ".config" / "minikafka" / "profiles" / "a.properties"
