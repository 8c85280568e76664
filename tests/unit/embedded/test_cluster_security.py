"""The files of a secured cluster: made once, kept, and renewed."""

from __future__ import annotations

import os
import stat
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from minikafka.base.config.property_files import parse_properties
from minikafka.base.errors import ConfigError, MinikafkaError, StorageError, StoreError
from minikafka.base.files import RealFiles
from minikafka.base.memory_files import MemoryFiles
from minikafka.base.secrets import Password
from minikafka.clients.admin.users import NewPassword, add_user
from minikafka.clients.admin.zookeeper.users import ZooKeeperUsers, has_password
from minikafka.embedded.certificate_authority import LIFETIME, CertificateAuthority, is_issued_by
from minikafka.embedded.cluster_security import (
    BROKER,
    CA_CERTIFICATE,
    CA_KEY,
    CLIENT,
    KAFKA_PYTHON,
    LIBRDKAFKA,
    RENEW_BEFORE,
    SPARK,
    USERS,
    ClusterSecurity,
    add_first_user,
    prepare,
    write_first_password,
)
from minikafka.net.tls import ServerTls, client_context
from minikafka.registry import paths
from minikafka.registry.memory import MemoryZooKeeper
from minikafka.registry.store import Store
from minikafka.security.certificates import Certificate
from minikafka.security.jaas import JaasConfig
from minikafka.security.ssl_config import SslConfig
from minikafka.security.stores.key_material import KeyMaterial
from tests.support.tls import TlsHandshake

NOW = datetime.now(timezone.utc)
DAY = timedelta(days=1)
ALL = {CA_KEY, CA_CERTIFICATE, BROKER, USERS, CLIENT, LIBRDKAFKA, KAFKA_PYTHON, SPARK}
FOLDER = "/data/security"


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def store() -> Store:
    store = MemoryZooKeeper().connect()
    store.create(paths.CONFIG_CHANGES, make_parents=True)
    return store


def prepared(files: MemoryFiles, *hosts: str, now: datetime = NOW) -> ClusterSecurity:
    return prepare(files, FOLDER, hosts, now)


def text_of(files: MemoryFiles, name: str) -> str:
    return bytes(files.map(f"{FOLDER}/{name}")).decode()


def write(files: MemoryFiles, name: str, text: str) -> None:
    file = files.open(f"{FOLDER}/{name}", create=True)
    file.truncate(0)
    file.write_at(0, text.encode())


def certificate_of(files: MemoryFiles) -> Certificate:
    text = text_of(files, BROKER)
    return Certificate.parse(KeyMaterial.from_pem(text, text, None).chain[0])


def test_all_files_are_made_once(files: MemoryFiles) -> None:
    first = prepared(files, "a.example")
    before = {name: text_of(files, name) for name in ALL}
    second = prepared(files, "a.example", now=NOW + DAY)
    assert set(first.made) == ALL
    assert second.made == ()
    assert second.users == first.users
    assert {name: text_of(files, name) for name in ALL} == before


def test_only_the_owner_can_read_the_files(tmp_path: Path) -> None:
    folder = tmp_path / "security"
    before = os.umask(0)
    try:
        prepare(RealFiles(), str(folder), [], NOW)
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == dict.fromkeys(
        ALL, 0o600
    )
    (folder / USERS).chmod(0o644)
    prepare(RealFiles(), str(folder), [], NOW)
    assert stat.S_IMODE((folder / USERS).stat().st_mode) == 0o600


def test_clients_and_brokers_connect_with_the_files(tmp_path: Path) -> None:
    security = prepare(RealFiles(), str(tmp_path), ["broker.example"], NOW)
    tls = {name: value for name, value in security.broker_properties().items() if name.startswith("ssl.")}
    server = ServerTls(SslConfig.from_properties(tls))
    properties = parse_properties((tmp_path / CLIENT).read_text(), CLIENT)
    assert properties == security.client_properties()
    config = SslConfig.from_properties({k: v for k, v in properties.items() if k.startswith("ssl.")})
    for host in ("broker.example", "localhost", "127.0.0.1", "::1"):
        TlsHandshake(server.context, client_context(config), host).run()


def test_passwords_are_in_the_jaas_texts(files: MemoryFiles) -> None:
    prepared(files)
    write(files, USERS, 'broker=plain\nadmin=a"b\\\\c;d=e f\nother=kept\n')
    security = prepared(files)
    name = "listener.name.sasl_ssl.plain.sasl.jaas.config"
    for text, user in (
        (security.broker_properties()[name], "broker"),
        (security.client_properties()["sasl.jaas.config"], "admin"),
    ):
        options = JaasConfig.parse(text).options
        assert options["username"].value == user
        assert options["password"] == security.users[user]
    assert security.users["admin"].value == 'a"b\\c;d=e f'
    assert security.users["other"].value == "kept"
    assert security.made == (CLIENT, LIBRDKAFKA, KAFKA_PYTHON, SPARK)


def test_first_user_gets_the_password_of_the_file(files: MemoryFiles, store: Store) -> None:
    add_first_user(store, prepared(files), own_zookeeper=True)
    files.remove(f"{FOLDER}/{USERS}")
    for _ in range(2):
        security = prepared(files)
        add_first_user(store, security, own_zookeeper=True)
        assert has_password(store, "admin", security.users["admin"])
    changes = store.children(paths.CONFIG_CHANGES)
    add_first_user(store, security, own_zookeeper=True)
    assert store.children(paths.CONFIG_CHANGES) == changes


def test_first_user_of_a_given_zookeeper_keeps_its_password(files: MemoryFiles, store: Store) -> None:
    theirs = Password("theirs")
    add_user(ZooKeeperUsers(store), "admin", NewPassword(theirs), os.urandom)
    with pytest.raises(MinikafkaError, match=rf"another password .* {FOLDER}/users\.properties.*write that"):
        add_first_user(store, prepared(files), own_zookeeper=False)
    assert has_password(store, "admin", theirs)


def test_new_password_is_written_to_all_files_of_clients(files: MemoryFiles) -> None:
    before = prepared(files)
    write_first_password(files, FOLDER, Password("a \\ new one"))
    after = prepared(files)
    assert after.made == ()
    assert after.users == {**before.users, "admin": Password("a \\ new one")}


def test_passwords_are_long_random_and_not_shown(files: MemoryFiles) -> None:
    security = prepared(files)
    passwords = {password.value for password in security.users.values()}
    assert len(passwords) == 2
    assert min(map(len, passwords)) >= 32
    assert not any(password in repr(security) for password in passwords)


@pytest.mark.parametrize("after", [LIFETIME - RENEW_BEFORE + DAY, LIFETIME + DAY])
def test_certificate_that_ends_is_renewed(files: MemoryFiles, after: timedelta) -> None:
    prepared(files, "a.example")
    later = NOW + after
    assert prepared(files, "a.example", now=later).made == (BROKER,)
    assert certificate_of(files).validity_fault(later + RENEW_BEFORE) is None


def test_new_host_is_added_to_those_before(files: MemoryFiles) -> None:
    prepared(files, "a.example")
    assert prepared(files, "b.example").made == (BROKER,)
    assert set(certificate_of(files).hosts) == {"a.example", "b.example", "localhost", "127.0.0.1", "::1"}
    assert prepared(files).made == ()


def test_key_of_the_ca_is_needed_only_to_issue(files: MemoryFiles) -> None:
    prepared(files)
    files.remove(f"{FOLDER}/{CA_KEY}")
    assert prepared(files).made == ()
    with pytest.raises(StoreError, match=r"ca\.key: not there: it is needed to renew broker\.pem"):
        prepared(files, "new.example")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        (CA_CERTIFICATE, "", "no certificate"),
        (BROKER, "", "no private key"),
        (BROKER, "-----BEGIN PRIVATE KEY-----", "no END line"),
        (USERS, "broker", "expected key=value"),
    ],
)
def test_damaged_file_is_an_error_that_names_it(files: MemoryFiles, name: str, text: str, says: str) -> None:
    prepared(files)
    write(files, name, text)
    with pytest.raises(StoreError, match=rf"{FOLDER}/{name}: .*{says}.*restore it, or move it away"):
        prepared(files)
    assert text_of(files, name) == text


def test_certificate_of_another_ca_is_an_error(files: MemoryFiles) -> None:
    prepared(files)
    write(files, BROKER, CertificateAuthority.create(NOW).issue(["localhost"], NOW).to_pem().value)
    with pytest.raises(StoreError, match=r"broker\.pem: not issued by the CA in ca\.pem"):
        prepared(files)


def test_key_of_another_ca_is_an_error(files: MemoryFiles) -> None:
    prepared(files)
    write(files, CA_KEY, CertificateAuthority.create(NOW).key.value)
    with pytest.raises(StoreError, match=r"ca\.key: cannot be used: the private key does not fit"):
        prepared(files, "new.example")


def test_expired_ca_is_an_error(files: MemoryFiles) -> None:
    prepared(files)
    with pytest.raises(StoreError, match=r"ca\.pem: .*expired at .*move the folder away"):
        prepared(files, now=NOW + 4000 * DAY)


def test_host_that_no_certificate_can_have_is_refused(files: MemoryFiles) -> None:
    with pytest.raises(ConfigError, match="must be a name or an address"):
        prepared(files, "a..b")


@pytest.mark.parametrize("name", sorted(ALL))
@pytest.mark.parametrize("fault", ["fail_next_write", "fail_next_sync", "fail_next_rename"])
def test_power_cut_leaves_nothing_half_made(files: MemoryFiles, name: str, fault: str) -> None:
    getattr(files, fault)(match=name)
    with pytest.raises(StorageError):
        prepared(files)
    files.power_cut()
    security = prepared(files)
    text = text_of(files, BROKER)
    material = KeyMaterial.from_pem(text, text, None)
    assert is_issued_by(material.chain[0], text_of(files, CA_CERTIFICATE))
    CertificateAuthority.read(text_of(files, CA_KEY), text_of(files, CA_CERTIFICATE))
    assert parse_properties(text_of(files, USERS), USERS).keys() == {"admin", "broker"}
    assert prepared(files).users == security.users
