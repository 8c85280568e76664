"""``minikafka user``: passwords that are set, changed and deleted, without ever being shown."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from datetime import datetime, timezone
from pathlib import Path

import pytest

from minikafka.base.config.property_files import read_properties
from minikafka.base.errors import ConfigError
from minikafka.base.files import RealFiles
from minikafka.base.secrets import Password
from minikafka.embedded.cluster_security import prepare
from minikafka.registry import paths
from minikafka.registry.entity_configs import read_config, write_config
from minikafka.registry.store import Store
from minikafka.security.sasl.scram import ScramCredential, ScramMechanism
from tests.support.broker_harness import BrokerHarness
from tests.support.command_line import CommandLine

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512


@pytest.fixture(params=["brokers", "zookeeper"])
def store(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    serve: Callable[[BrokerHarness], BrokerHarness],
    cli: CommandLine,
) -> Store:
    """Return the ZooKeeper whose users the commands change, by its broker or directly."""
    store = serve(BrokerHarness()).zookeeper.connect()
    if request.param == "zookeeper":
        cli.options = ("--zookeeper", "memory")
        monkeypatch.setattr(
            "minikafka.cli.connection.connect.zookeeper_store", lambda *_, **__: nullcontext(store)
        )
    return store


def type_in(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def password_is(store: Store, user: str, mechanism: ScramMechanism, password: str, iterations: int) -> bool:
    text = read_config(store, paths.USERS, user)[mechanism.value]
    held = ScramCredential.parse(mechanism, text)
    return held == ScramCredential.create(mechanism, Password(password), held.salt, iterations)


def test_name_of_clients_without_authentication_is_refused(
    store: Store, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    type_in(monkeypatch, b"tiger")
    assert cli.run("user", "add", "ANONYMOUS", "--password-stdin") == 2
    assert "NAME='ANONYMOUS': is the name of all clients that do not authenticate" in cli.err
    assert read_config(store, paths.USERS, "ANONYMOUS") == {}


def test_password_of_the_first_user_is_written_to_its_files(
    store: Store, cli: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    prepare(RealFiles(), str(tmp_path / "security"), [], datetime.now(timezone.utc))
    for user, password in (("admin", "tiger"), ("alice", "lion")):
        for what in ("add", "passwd"):
            type_in(monkeypatch, password.encode())
            assert cli.run("user", what, user, "--password-stdin", "--data-dir", str(tmp_path)) == 0
    users = read_properties(str(tmp_path / "security" / "users.properties"), "file")
    assert users["admin"] == "tiger"
    assert "alice" not in users
    assert "tiger" in (tmp_path / "security" / "client.properties").read_text()


def test_first_user_of_a_secured_cluster_is_not_deleted(
    store: Store, cli: CommandLine, tmp_path: Path
) -> None:
    write_config(store, paths.USERS, "admin", {"SCRAM-SHA-512": "…"})
    (tmp_path / "security").mkdir()
    assert cli.run("user", "delete", "admin", "--data-dir", str(tmp_path)) == 2
    assert "each start of the cluster adds again" in cli.err
    assert read_config(store, paths.USERS, "admin")


def test_an_added_user_has_both_mechanisms_and_keeps_its_quotas(
    store: Store, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_config(store, paths.USERS, "al%20ice", {"producer_byte_rate": "1024"})
    type_in(monkeypatch, "tigér\n".encode())
    assert cli.run("user", "add", "al ice", "--password-stdin") == 0
    assert cli.out == "added user al ice (SCRAM-SHA-256, SCRAM-SHA-512)\n"
    for mechanism in ScramMechanism:
        assert password_is(store, "al%20ice", mechanism, "tigér", 4096)
    assert read_config(store, paths.USERS, "al%20ice")["producer_byte_rate"] == "1024"
    newest = store.children(paths.CONFIG_CHANGES)[-1]
    assert store.read(f"{paths.CONFIG_CHANGES}/{newest}")[0] == (
        b'{"version":2,"entity_path":"users/al%20ice"}'
    )


def test_each_mechanism_has_a_salt_of_its_own(store: Store, cli: CommandLine) -> None:
    assert cli.run("user", "add", "a", "--password", "x") == 0
    config = read_config(store, paths.USERS, "a")
    assert config[SHA_256.value].split(",")[0] != config[SHA_512.value].split(",")[0]


def test_the_password_of_all_mechanisms_is_changed_unless_one_is_named(
    store: Store, cli: CommandLine
) -> None:
    assert cli.run("user", "add", "a", "--password", "x", "--mechanism", "SCRAM-SHA-512") == 0
    assert cli.run("user", "passwd", "a", "--password", "y", "--iterations", "8192") == 0
    assert cli.out == "changed the password of a (SCRAM-SHA-512)\n"
    assert password_is(store, "a", SHA_512, "y", 8192)
    assert SHA_256.value not in read_config(store, paths.USERS, "a")
    assert cli.run("user", "passwd", "a", "--password", "z", "--mechanism", "SCRAM-SHA-256") == 0
    assert password_is(store, "a", SHA_256, "z", 4096)
    assert password_is(store, "a", SHA_512, "y", 8192)


def test_the_list_has_users_with_passwords_and_no_secret(store: Store, cli: CommandLine) -> None:
    assert cli.run("user", "list") == 0
    assert (cli.out, cli.err) == ("", "minikafka: no users with passwords\n")
    assert cli.run("user", "add", "b", "--password", "tiger", "--iterations", "8192") == 0
    assert cli.run("user", "add", "a*", "--password", "lion", "--mechanism", "SCRAM-SHA-256") == 0
    write_config(store, paths.USERS, "quota", {"producer_byte_rate": "5"})
    write_config(store, paths.USERS, "c", {SHA_256.value: "tiger"})
    assert cli.run("user", "list") == 0
    assert [line.split() for line in cli.lines[1:]] == [
        ["a*", "SCRAM-SHA-256", "4096"],
        ["b", "SCRAM-SHA-256", "8192"],
        ["b", "SCRAM-SHA-512", "8192"],
        ["c", "SCRAM-SHA-256" if cli.options else "-", "-"],  # a broker does not tell which
    ]
    assert "credential of user c is invalid; set the password with `minikafka user passwd c`" in cli.err
    assert cli.run("user", "list", "--format", "json") == 0
    assert cli.rows[0] == {"user": "a*", "mechanism": "SCRAM-SHA-256", "iterations": 4096}
    stored = [value for user in ("b", "c") for value in read_config(store, paths.USERS, user).values()]
    assert not [value for value in stored if value in cli.out + cli.err]


def test_a_deleted_user_has_its_quotas_left(store: Store, cli: CommandLine) -> None:
    write_config(store, paths.USERS, "a", {"producer_byte_rate": "5"})
    assert cli.run("user", "add", "a", "--password", "x") == 0
    assert cli.run("user", "delete", "a", "--mechanism", "SCRAM-SHA-256", "--format", "json") == 0
    assert json.loads(cli.out) == {"user": "a", "mechanisms": ["SCRAM-SHA-256"]}
    assert cli.run("user", "delete", "a", "--mechanism", "SCRAM-SHA-256") == 1
    assert "user a has no password for SCRAM-SHA-256" in cli.err
    assert cli.run("user", "delete", "a") == 0
    assert read_config(store, paths.USERS, "a") == {"producer_byte_rate": "5"}


@pytest.mark.parametrize("command", [("passwd", "a", "--password", "x"), ("delete", "a")])
def test_a_user_without_a_password_is_neither_changed_nor_deleted(
    store: Store, cli: CommandLine, command: tuple[str, ...]
) -> None:
    write_config(store, paths.USERS, "a", {"producer_byte_rate": "5"})
    assert cli.run("user", *command) == 1
    assert cli.err.startswith("minikafka: there is no user a with a password; add one with")
    assert read_config(store, paths.USERS, "a") == {"producer_byte_rate": "5"}


def test_a_user_who_exists_is_not_added_again(store: Store, cli: CommandLine) -> None:
    assert cli.run("user", "add", "a", "--password", "x", "--mechanism", "SCRAM-SHA-256") == 0
    assert cli.run("user", "add", "a", "--password", "y") == 1
    assert cli.err == (
        "minikafka: user a exists already, with SCRAM-SHA-256; change the password with "
        "`minikafka user passwd a`\n"
    )
    assert password_is(store, "a", SHA_256, "x", 4096)
    assert cli.run("user", "add", "a", "--password", "y", "--mechanism", "SCRAM-SHA-512") == 0


@pytest.mark.parametrize(
    ("words", "data", "said"),
    [
        (("--password", ""), b"", "NAME='a': needs a password that is not empty"),
        (("--password-stdin",), b"\n", "NAME='a': needs a password that is not empty"),
        (("--password", "\udcff"), b"", "NAME='a': needs a password in UTF-8"),
        (
            ("--password-stdin",),
            b"a\nsecond-secret\n",
            "stdin: must be the password in one line, got 2 lines",
        ),
        (("--password-stdin",), b"\xff\xfe", "stdin: must be the password in UTF-8"),
        (("--password-stdin", "--password", "tiger"), b"", "set only one of --password-stdin and --password"),
        ((), b"", "stdin: must be a terminal to ask for the password; or use --password-stdin"),
        (("--password", "tiger", "--iterations", "4095"), b"", "--iterations='4095'"),
        (("--password", "tiger", "--iterations", "16385"), b"", "--iterations='16385'"),
        (("--password", "tiger", "--mechanism", "PLAIN"), b"", "must be SCRAM-SHA-256 or SCRAM-SHA-512"),
        (("--password", "tiger", "--format", "xml"), b"", "--format='xml'"),
    ],
)
def test_wrong_input_is_one_line_without_the_password(
    store: Store,
    cli: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    data: bytes,
    said: str,
) -> None:
    type_in(monkeypatch, data)
    assert cli.run("user", "add", "a", *words) == 2
    assert cli.out == ""
    assert len(cli.err.splitlines()) == 1
    assert said in cli.err
    assert "tiger" not in cli.err
    assert "second-secret" not in cli.err
    assert read_config(store, paths.USERS, "a") == {}


@pytest.mark.parametrize("name", ["", ".", "..", "<default>", "a\0b"])
def test_a_name_that_no_user_can_have_is_refused(store: Store, cli: CommandLine, name: str) -> None:
    for command in (("add", "--password", "x"), ("passwd", "--password", "x"), ("delete",)):
        assert cli.run("user", command[0], name, *command[1:]) == 2
        assert "must be the name of a user" in cli.err


def test_a_password_is_typed_twice(store: Store, cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    type_in(monkeypatch, b"")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    typed = iter(["tiger", "lion", "tiger", "tiger"])
    monkeypatch.setattr("getpass.getpass", lambda prompt: next(typed))
    assert cli.run("user", "add", "a") == 2
    assert "NAME='a': got two passwords that differ; nothing was changed" in cli.err
    assert cli.run("user", "add", "a") == 0
    assert password_is(store, "a", SHA_512, "tiger", 4096)


def test_a_failure_does_not_show_the_password(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ConfigError("--zookeeper", "h:1", "--password tiger-7 is what was given")

    monkeypatch.setattr("minikafka.cli.connection.connect.zookeeper_store", fail)
    assert cli.run("user", "add", "a", "--password", "tiger-7", "--zookeeper", "h:1") == 2
    assert "tiger-7" not in cli.err
