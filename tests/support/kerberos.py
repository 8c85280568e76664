"""Kerberos: a realm with a KDC of MIT Kerberos on a free port, and a broker of Apache Kafka in it.

It needs the programs of the KDC, and the package ``gssapi``, which scripts/interop builds and
``MINIKAFKA_GSSAPI`` names. Nothing of it needs root.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from minikafka.embedded.process import ChildProcess, wait_until
from minikafka.embedded.zookeeper import EmbeddedZooKeeper
from minikafka.net.ports import can_connect, free_port
from minikafka.security.jaas import LOGIN_MODULES
from tests.interop.releases import KAFKA_3_9
from tests.support.secured_kafka import SESSION_MS, Properties, SecuredKafka, quoted, started
from tests.support.tls import HOSTS, authority, inline_keys, inline_trust

REALM = "MINIKAFKA.TEST"
SERVICE = "kafka"
USER = "alice"
"""The super user of the broker."""

_PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
_KRB5_CONF = """
[libdefaults]
  default_realm = {realm}
  dns_lookup_kdc = false
  dns_lookup_realm = false
  clockskew = 1
[realms]
  {realm} = {{
    {kdcs}
  }}
[domain_realm]
  localhost = {realm}
"""
# The clocks are the same: a broker refuses a ticket one second after its end.
_KDC_CONF = """
[kdcdefaults]
  kdc_listen = {kdc}
  kdc_tcp_listen = {kdc}
[realms]
  {realm} = {{
    database_name = {directory}/principal
    key_stash_file = {directory}/stash
  }}
[logging]
  kdc = FILE:{directory}/kdc.log
"""


@contextlib.contextmanager
def gssapi_package() -> Iterator[None]:
    """Let this process and its children import ``gssapi``. Skips the test if it is not there."""
    directory = os.environ.get("MINIKAFKA_GSSAPI")
    with pytest.MonkeyPatch.context() as patch:
        if directory:
            patch.syspath_prepend(directory)
            patch.setenv("PYTHONPATH", directory, prepend=os.pathsep)
        try:
            importlib.import_module("gssapi")
        except ImportError as error:
            pytest.skip(f"no package gssapi ({error}): scripts/interop builds it, MINIKAFKA_GSSAPI names it")
        yield


def _program(name: str) -> str:
    # Debian has them where only root's PATH leads.
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}{os.pathsep}/usr/sbin")
    if found is None:
        pytest.skip(f"{name} is not on PATH: a KDC needs krb5-kdc, krb5-admin-server and krb5-user")
    return found


@dataclass(slots=True)
class Realm:
    """A realm whose KDC may be stopped and started again."""

    directory: Path
    _port: int = field(default_factory=free_port)
    _kdc: ChildProcess | None = None

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables of a program in this realm, which has no ticket."""
        return {
            "KRB5_CONFIG": str(self.directory / "krb5.conf"),
            "KRB5_KDC_PROFILE": str(self.directory / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{self.directory}/no-tickets",
        }

    def create(self) -> None:
        """Make the realm without principals."""
        self.directory.mkdir(parents=True)
        self.write_config("krb5.conf", self._port)
        kdc, directory = f"127.0.0.1:{self._port}", self.directory
        text = _KDC_CONF.format(realm=REALM, kdc=kdc, directory=directory)
        (directory / "kdc.conf").write_text(text)
        self._run("kdb5_util", "create", "-r", REALM, "-s", "-P", "master")

    def write_config(self, name: str, *ports: int) -> Path:
        """Write a ``krb5.conf`` with KDCs at these ports."""
        kdcs = "\n    ".join(f"kdc = 127.0.0.1:{port}" for port in ports)
        path = self.directory / name
        path.write_text(_KRB5_CONF.format(realm=REALM, kdcs=kdcs))
        return path

    def write_config_with_another_kdc(self, name: str, port: int) -> Path:
        """Write a ``krb5.conf`` in which the KDC comes after one at ``port``."""
        return self.write_config(name, port, self._port)

    def start(self) -> None:
        """Return when the KDC answers."""
        command = [_program("krb5kdc"), "-n", "-r", REALM, "-P", str(self.directory / "kdc.pid")]
        environment = {**os.environ, **self.environment}
        self._kdc = ChildProcess(
            command, name="krb5kdc", log=str(self.directory / "kdc.out"), environment=environment
        )
        if not wait_until(lambda: can_connect("127.0.0.1", self._port), 10):
            raise self._kdc.failure("does not accept connections")

    def stop(self) -> None:
        """Stop the KDC, if it runs."""
        if self._kdc is not None:
            self._kdc.stop()
            self._kdc = None

    def keytab(self, principal: str, *options: str) -> Path:
        """Add a principal with random keys, and return its keytab. options: those of ``addprinc``."""
        self._run("kadmin.local", "addprinc", "-randkey", *options, principal)
        path = self.directory / f"{principal.replace('/', '-')}.keytab"
        self._run("kadmin.local", "ktadd", "-k", str(path), principal)
        return path

    def change_keys(self, principal: str) -> None:
        """Make new keys for a principal, which its keytab does not have."""
        self._run("kadmin.local", "change_password", "-randkey", principal)

    def delete(self, principal: str) -> None:
        self._run("kadmin.local", "delete_principal", "-force", principal)

    def kinit(self, principal: str, keytab: Path, cache: Path, *options: str) -> None:
        """Put a ticket into a cache file."""
        self._run("kinit", "-c", f"FILE:{cache}", "-k", "-t", str(keytab), *options, principal)

    def tickets(self, principal: str) -> int:
        """Return how often a principal has logged in to the KDC."""
        lines = (self.directory / "kdc.log").read_text().splitlines()
        return sum("ISSUE" in line and f" {principal}@{REALM} for krbtgt/" in line for line in lines)

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [_program(program), *arguments],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert done.returncode == 0, done.stderr


@contextlib.contextmanager
def kerberos_realm(directory: Path) -> Iterator[Realm]:
    """Run a KDC; this process is in its realm. Skips the test if a program of it is not there."""
    for program in _PROGRAMS:
        _program(program)
    realm = Realm(directory)
    realm.create()
    try:
        realm.start()
        with pytest.MonkeyPatch.context() as patch:
            for name, value in realm.environment.items():
                patch.setenv(name, value)
            yield realm
    finally:
        realm.stop()


def kerberos_jaas(**options: object) -> str:
    """Return the JAAS text of Kerberos."""
    texts = (f"{name}={quoted(str(value))}" for name, value in options.items())
    return f"{LOGIN_MODULES['GSSAPI']} required {' '.join(texts)};"


def keytab_login(principal: str, keytab: Path) -> str:
    """Return the JAAS text of a client with a keytab."""
    return kerberos_jaas(useKeyTab="true", keyTab=keytab, principal=principal)


@dataclass(frozen=True, slots=True)
class KerberosKafka:
    """A broker that permits the user alice everything. Sessions of its listener REAUTH take two seconds."""

    realm: Realm
    kafka: SecuredKafka
    keytab: Path
    """The keytab of alice."""

    def client(self, jaas: str | None = None, listener: str = "SASL_PLAINTEXT") -> Properties:
        """Return what a client sets; by default that of alice."""
        return {
            **self.kafka.client(listener),
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": SERVICE,
            "sasl.jaas.config": jaas or keytab_login(USER, self.keytab),
        }


@contextlib.contextmanager
def kerberos_kafka(realm: Realm, directory: Path) -> Iterator[KerberosKafka]:
    """Run a broker of 3.9.1 with the listeners SASL_PLAINTEXT, SASL_SSL and REAUTH."""
    keytab = realm.keytab(f"{SERVICE}/localhost")
    login = kerberos_jaas(
        useKeyTab="true", storeKey="true", keyTab=keytab, principal=f"{SERVICE}/localhost@{REALM}"
    )
    names = ("SASL_PLAINTEXT", "SASL_SSL", "REAUTH")
    protocols = "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL,REAUTH:SASL_PLAINTEXT"
    config = {
        "listener.security.protocol.map": protocols,
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": SERVICE,
        **{f"listener.name.{name.lower()}.gssapi.sasl.jaas.config": login for name in names},
        "listener.name.reauth.gssapi.connections.max.reauth.ms": str(SESSION_MS),
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": f"User:{USER};User:ANONYMOUS",
        "group.initial.rebalance.delay.ms": "0",
        **inline_keys(authority().issue_cert(*HOSTS, common_name="broker")),
        **inline_trust(authority()),
    }
    with EmbeddedZooKeeper(str(directory)) as zookeeper:
        connect = f"{zookeeper.connect}/kafka"
        jvm = (f"-Djava.security.krb5.conf={realm.environment['KRB5_CONFIG']}",)
        with started(KAFKA_3_9, directory, names, config, connect, jvm=jvm) as kafka:
            yield KerberosKafka(realm, kafka, realm.keytab(USER))
