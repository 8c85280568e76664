"""The security of a cluster on this machine: its CA, the certificate of its brokers, and its first users.

    D/ca.key              signs the certificates of brokers; may be kept elsewhere until one is to be renewed
    D/ca.pem              the certificate of the CA: all that a client needs to know the brokers
    D/broker.pem          key and certificate of the brokers
    D/users.properties    user -> password: the brokers' own, and the first user's
    D/client.properties   what clients of that user set, also of Java (``--command-config``)
    D/librdkafka.properties, D/kafka-python.json, D/spark-options.json
                          the same by the names that these clients have for it

Each file can be read by its owner alone, from its first byte on. ``prepare`` can be repeated: it keeps what
is there, and renews a certificate that ends soon or lacks a host. A file that it cannot use is an error, as
another one in its place would shut clients out; only the files for clients, which are made of the others, are
written anew. Files are replaced as a whole, and the certificate of a CA is written after its key, so that a
crash leaves nothing half-made.

Brokers log in to each other with PLAIN, whose password is in their own configuration: SCRAM would need a user
in ZooKeeper before the first of them starts, and anybody who deletes that user would end the cluster. Clients
have SCRAM; ``add_first_user`` sets the password of the first of them, which is that of the file.

Only one process at a time may call ``prepare``: the holder of the data directory.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from minikafka.base.config.property_files import parse_properties, properties_text
from minikafka.base.errors import ConfigError, MinikafkaError, NoSuchUser, StoreError, UserExists
from minikafka.base.files import Files, make_dirs_durably, replace_file
from minikafka.base.secrets import Password
from minikafka.clients.admin.users import NewPassword, add_user, change_password, delete_user
from minikafka.clients.admin.zookeeper.users import ZooKeeperUsers, has_password
from minikafka.embedded.certificate_authority import CertificateAuthority, covers, is_issued_by
from minikafka.registry.store import Store
from minikafka.security.certificates import Certificate
from minikafka.security.jaas import LOGIN_MODULES
from minikafka.security.sasl.scram import ScramMechanism
from minikafka.security.stores.key_material import KeyMaterial, certificates_in

T = TypeVar("T")

CA_KEY, CA_CERTIFICATE, BROKER = "ca.key", "ca.pem", "broker.pem"
USERS, CLIENT = "users.properties", "client.properties"
LIBRDKAFKA, KAFKA_PYTHON, SPARK = "librdkafka.properties", "kafka-python.json", "spark-options.json"

BROKER_USER = "broker"
"""The user that the brokers are for each other."""
FIRST_USER = "admin"
MECHANISM = "SCRAM-SHA-512"
_TRUSTSTORE = "ssl.truststore.location"
SUPER_USERS = "super.users"
AUTHORIZER = "authorizer.class.name"
AUTHORIZER_CLASS = "kafka.security.auth.SimpleAclAuthorizer"
MECHANISMS = "sasl.enabled.mechanisms"
MECHANISMS_OF_LISTENER = f"listener.name.sasl_ssl.{MECHANISMS}"
BROKER_MECHANISM = "PLAIN"
_USER_MECHANISMS = f"{MECHANISM},SCRAM-SHA-256"
"""Those of users that are added: `minikafka user add` has both."""
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
RENEW_BEFORE = timedelta(days=30)
"""A certificate is renewed when the rest of its life is shorter: a cluster may run for weeks."""
_PASSWORD_BYTES = 24


@dataclass(frozen=True, slots=True)
class ClusterSecurity:
    """The files of a secured cluster, and its users."""

    directory: str
    users: Mapping[str, Password]
    """The brokers' own user and the first one, by name, with their passwords."""
    made: tuple[str, ...] = ()
    """The files that were made or renewed now."""

    def path(self, name: str) -> str:
        """Return the path of one of the files."""
        return os.path.join(self.directory, name)

    def broker_properties(self) -> dict[str, str]:
        """Return the settings of security of each broker, whose listeners are all SASL_SSL."""
        return {
            AUTHORIZER: AUTHORIZER_CLASS,
            "security.inter.broker.protocol": "SASL_SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.path(BROKER),
            "ssl.truststore.type": "PEM",
            _TRUSTSTORE: self.path(CA_CERTIFICATE),
            MECHANISMS: _USER_MECHANISMS,
            MECHANISMS_OF_LISTENER: f"{_USER_MECHANISMS},{BROKER_MECHANISM}",
            "sasl.mechanism.inter.broker.protocol": BROKER_MECHANISM,
            "listener.name.sasl_ssl.plain.sasl.jaas.config": self._jaas_of_brokers(),
            SUPER_USERS: ";".join(f"User:{user}" for user in (BROKER_USER, FIRST_USER)),
        }

    def client_properties(self) -> dict[str, str]:
        """Return the settings of clients of the first user."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": self._jaas_of_clients(),
            "ssl.truststore.type": "PEM",
            _TRUSTSTORE: self.path(CA_CERTIFICATE),
        }

    def librdkafka_properties(self) -> dict[str, str]:
        """Return the same by the names of librdkafka, for ``kcat -F`` and confluent_kafka."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.username": FIRST_USER,
            "sasl.password": self.users[FIRST_USER].value,
            "ssl.ca.location": self.path(CA_CERTIFICATE),
        }

    def kafka_python_arguments(self) -> dict[str, str]:
        """Return the same as keyword arguments of kafka-python's clients."""
        return {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": MECHANISM,
            "sasl_plain_username": FIRST_USER,
            "sasl_plain_password": self.users[FIRST_USER].value,
            "ssl_cafile": self.path(CA_CERTIFICATE),
        }

    def spark_options(self, ca_certificate: str) -> dict[str, str]:
        """Return the same as options of Spark, with the certificate itself: executors may lack the file."""
        inline = with_certificate(self.client_properties(), ca_certificate)
        return {f"kafka.{name}": value for name, value in inline.items()}

    def _jaas_of_clients(self) -> str:
        password = _quoted(self.users[FIRST_USER])
        return f'{LOGIN_MODULES[MECHANISM]} required username="{FIRST_USER}" password={password};'

    def _jaas_of_brokers(self) -> str:
        password = _quoted(self.users[BROKER_USER])
        login = f'username="{BROKER_USER}" password={password} user_{BROKER_USER}={password}'
        return f"{LOGIN_MODULES[BROKER_MECHANISM]} required {login};"


def _quoted(password: Password) -> str:
    """Return a password as a value of a JAAS text."""
    escaped = password.value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def with_certificate(client_properties: Mapping[str, str], ca_certificate: str) -> dict[str, str]:
    """Return the properties of clients with the certificate of the CA in place of its file."""
    others = {name: value for name, value in client_properties.items() if name != _TRUSTSTORE}
    return {**others, "ssl.truststore.certificates": ca_certificate}


def delete_super_users(store: Store) -> None:
    """Delete the users of a ZooKeeper that was open: anybody may have added one with a super user's name."""
    for user in (BROKER_USER, FIRST_USER):
        with suppress(NoSuchUser):
            delete_user(ZooKeeperUsers(store), user)


def add_first_user(store: Store, security: ClusterSecurity, *, own_zookeeper: bool) -> None:
    """Add the first user of clients, with the password of the file, also if ZooKeeper has another one.

    Raises MinikafkaError instead if the ZooKeeper is not this cluster's own: others may use that user.
    """
    password = security.users[FIRST_USER]
    new = NewPassword(password)
    with suppress(UserExists):
        add_user(ZooKeeperUsers(store), FIRST_USER, new, secrets.token_bytes, [ScramMechanism(MECHANISM)])
    if has_password(store, FIRST_USER, password):
        return
    if not own_zookeeper:
        raise MinikafkaError(
            f"user {FIRST_USER} has another password in the given ZooKeeper than in {security.path(USERS)}, "
            f"so that its clients cannot log in; write that password to the file, or set this one with "
            f"`minikafka user passwd {FIRST_USER} --zookeeper HOST:PORT`, and start again"
        )
    change_password(ZooKeeperUsers(store), FIRST_USER, new, secrets.token_bytes)


def write_first_password(files: Files, directory: str, password: Password) -> None:
    """Write a new password of the first user to the files that have it. Raises StoreError, StorageError."""
    folder = _Folder(files, directory)
    users = {**folder.users(), FIRST_USER: password}
    folder.write_users(users)
    folder.write_client_files(users, folder.read(CA_CERTIFICATE) or "")


def prepare(files: Files, directory: str, hosts: Sequence[str], now: datetime) -> ClusterSecurity:
    """Make what is missing in ``directory``, and renew what ends soon.

    hosts: names and addresses by which clients reach the brokers, beside those of this machine itself.
    Raises StoreError with the file that cannot be used and what to do, ConfigError for a host that no
    certificate can have, and StorageError.
    """
    folder = _Folder(files, directory)
    make_dirs_durably(files, directory)
    certificate = folder.ca_certificate(now)
    folder.broker_certificate(certificate, tuple(dict.fromkeys((*hosts, *LOCAL_HOSTS))), now)
    users = folder.users()
    folder.write_client_files(users, certificate)
    return ClusterSecurity(directory, users, tuple(folder.made))


class _Folder:
    """Reads and writes the files."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self.made: list[str] = []

    def ca_certificate(self, now: datetime) -> str:
        """Return the certificate of the CA, which is made if there is none."""
        found = self.read(CA_CERTIFICATE)
        if found is None:
            ca = CertificateAuthority.create(now)
            self._write(CA_KEY, ca.key.value)
            self._write(CA_CERTIFICATE, ca.certificate)
            return ca.certificate
        fault = self._usable(
            CA_CERTIFICATE, lambda: Certificate.parse(certificates_in(found)[0]).validity_fault(now)
        )
        if fault is not None:
            raise self._unusable(
                CA_CERTIFICATE, f"{fault}; move the folder away to make a new CA for all clients"
            )
        return found

    def broker_certificate(self, ca_certificate: str, hosts: Sequence[str], now: datetime) -> None:
        """Make the certificate of the brokers, unless there is one that is good for some time."""
        found = self.read(BROKER)
        if found is not None:
            material = self._usable(BROKER, lambda: KeyMaterial.from_pem(found, found, None))
            if not is_issued_by(material.chain[0], ca_certificate):
                raise self._unusable(
                    BROKER, f"not issued by the CA in {CA_CERTIFICATE}; move it away to get a new one"
                )
            known = Certificate.parse(material.chain[0])
            if known.validity_fault(now + RENEW_BEFORE) is None and covers(known, hosts):
                return
            # Hosts that it had are kept: another client may use them.
            hosts = tuple(dict.fromkeys((*hosts, *known.dns_names, *known.ip_addresses)))
        key = self.read(CA_KEY)
        if key is None:
            raise self._unusable(
                CA_KEY, f"not there: it is needed to renew {BROKER}; put it back for that time"
            )
        ca = self._usable(CA_KEY, lambda: CertificateAuthority.read(key, ca_certificate))
        self._write(BROKER, ca.issue(hosts, now).to_pem().value)

    def users(self) -> dict[str, Password]:
        """Return the users with their passwords; those that are missing are made."""
        text = self.read(USERS) or ""
        found = self._usable(USERS, lambda: parse_properties(text, USERS))
        users = {name: Password(value) for name, value in found.items() if value}
        missing = [name for name in (BROKER_USER, FIRST_USER) if name not in users]
        if missing:
            users |= {name: Password(secrets.token_urlsafe(_PASSWORD_BYTES)) for name in missing}
            self.write_users(users)
        return users

    def write_users(self, users: Mapping[str, Password]) -> None:
        """Write the users with their passwords."""
        self._write(USERS, properties_text({name: password.value for name, password in users.items()}))

    def write_client_files(self, users: Mapping[str, Password], ca_certificate: str) -> None:
        """Write the files for clients, which are made of the others."""
        security = ClusterSecurity(self._directory, users)
        self._write_if_other(CLIENT, properties_text(security.client_properties()))
        self._write_if_other(LIBRDKAFKA, properties_text(security.librdkafka_properties()))
        self._write_if_other(KAFKA_PYTHON, json.dumps(security.kafka_python_arguments(), indent=1) + "\n")
        self._write_if_other(SPARK, json.dumps(security.spark_options(ca_certificate), indent=1) + "\n")

    def _write_if_other(self, name: str, text: str) -> None:
        """Write a file that is made of others, unless it has this content."""
        if self.read(name) != text:
            self._write(name, text)

    def read(self, name: str) -> str | None:
        """Return a file's text, and let its owner alone read it from now on; None if it is not there."""
        path = os.path.join(self._directory, name)
        if not self._files.exists(path):
            return None
        with closing(self._files.open(path, private=True)) as file:
            return file.read_at(0, file.size()).decode("utf-8", "replace")

    def _write(self, name: str, text: str) -> None:
        replace_file(self._files, os.path.join(self._directory, name), text.encode(), private=True)
        self.made.append(name)

    def _usable(self, name: str, load: Callable[[], T]) -> T:
        try:
            return load()
        except (StoreError, ConfigError) as error:
            raise self._unusable(
                name, f"cannot be used: {error}; restore it, or move it away to get a new one"
            ) from None

    def _unusable(self, name: str, why: str) -> StoreError:
        return StoreError(f"{os.path.join(self._directory, name)}: {why}")
