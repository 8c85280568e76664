"""Our clients and commands log in by GSSAPI, with a KDC of MIT Kerberos, at Apache Kafka 3.9.1."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.base.errors import AuthenticationFailed, BrokerError, ErrorCode
from minikafka.clients.admin.admin import Admin
from minikafka.clients.produce.config import BatchingConfig
from minikafka.clients.produce.producer import BatchingProducer
from minikafka.embedded.process import wait_until
from minikafka.net.ports import free_port
from tests.interop.compatibility import COMMANDS, PRODUCER_AND_CONSUMER, SPARK_SOURCE, record_ours
from tests.support.command_line import CommandLine
from tests.support.kerberos import (
    USER,
    KerberosKafka,
    gssapi_package,
    kerberos_jaas,
    kerberos_kafka,
    kerberos_realm,
    keytab_login,
)
from tests.support.secured_kafka import (
    Properties,
    as_options,
    check_mistake,
    client_of,
    connect_by,
    create_topic,
    produce_over_sessions,
    run_commands,
    write_and_read,
    write_and_read_by_the_texts,
)

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

SHORT = ("-maxlife", "3 seconds")
"""The lifetime of a principal's tickets."""


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KerberosKafka]:
    directory = tmp_path_factory.mktemp("kerberos")
    with (
        gssapi_package(),
        kerberos_realm(directory / "realm") as realm,
        kerberos_kafka(realm, directory / "kafka") as broker,
    ):
        yield broker


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_clients_with_a_keytab_write_and_read(
    request: pytest.FixtureRequest, kafka: KerberosKafka, listener: str
) -> None:
    record_ours(request, PRODUCER_AND_CONSUMER, kafka.kafka.release, connect_by(listener, "GSSAPI"))
    write_and_read(kafka.client(listener=listener))


@pytest.mark.parametrize("names_file", [True, False])
def test_clients_with_a_ticket_of_kinit_write_and_read(
    kafka: KerberosKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names_file: bool
) -> None:
    cache = tmp_path / "tickets"
    kafka.realm.kinit(USER, kafka.keytab, cache)
    options = {"ticketCache": cache} if names_file else {}
    if not names_file:
        monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    write_and_read(kafka.client(kerberos_jaas(useTicketCache="true", **options)))


def test_clients_of_the_texts_write_and_read(kafka: KerberosKafka) -> None:
    write_and_read_by_the_texts(kafka.client(listener="SASL_SSL"))


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_commands_take_a_file_of_properties(
    request: pytest.FixtureRequest,
    kafka: KerberosKafka,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    listener: str,
) -> None:
    record_ours(request, COMMANDS, kafka.kafka.release, connect_by(listener, "GSSAPI"))
    run_commands(
        CommandLine(capfd), tmp_path, kafka.client(listener=listener), f"commands-{listener.lower()}"
    )


def test_principals_of_one_process_are_kept_apart(kafka: KerberosKafka) -> None:
    with client_of(kafka.client()) as alice:
        create_topic(alice)
    keytab = kafka.realm.keytab("bob")
    for jaas in (keytab_login("bob", keytab), kerberos_jaas(useKeyTab="true", keyTab=keytab)):
        with client_of(kafka.client(jaas)) as bob, pytest.raises(BrokerError) as refused:
            create_topic(bob)
        assert refused.value.code in (
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        )


def test_spark_writes_reads_and_streams_with_a_keytab(
    request: pytest.FixtureRequest, kafka: KerberosKafka, tmp_path: Path
) -> None:
    record_ours(request, SPARK_SOURCE, kafka.kafka.release, connect_by("SASL_SSL", "GSSAPI"))
    properties = kafka.client(listener="SASL_SSL")
    with client_of(properties) as cluster:
        topic = create_topic(cluster)
    program = Path(__file__).with_name("programs") / "spark_login.py"
    done = subprocess.run(
        [sys.executable, str(program), topic, str(tmp_path)],
        input=json.dumps(as_options(properties)),
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    assert json.loads(done.stdout.splitlines()[-1]) == [100, 100]


# Tickets that end.


def test_new_connections_use_new_tickets_of_the_keytab(kafka: KerberosKafka) -> None:
    keytab = kafka.realm.keytab("alice/short", *SHORT)
    produce_over_sessions(kafka.client(keytab_login("alice/short", keytab), "REAUTH"))
    assert kafka.realm.tickets("alice/short") > 1


def test_ended_ticket_is_an_error_until_there_is_a_new_one(kafka: KerberosKafka, tmp_path: Path) -> None:
    cache = tmp_path / "tickets"
    properties = kafka.client(kerberos_jaas(useTicketCache="true", ticketCache=cache))
    kafka.realm.kinit(USER, kafka.keytab, cache, "-l", "2s")
    assert error_of(properties) == ""
    assert wait_until(
        lambda: "Ticket expired; check principal and keyTab (or kinit)" in error_of(properties), 15
    )
    kafka.realm.kinit(USER, kafka.keytab, cache)
    assert error_of(properties) == ""


def error_of(properties: Properties) -> str:
    """Return why a client cannot log in; "" if it can."""
    try:
        with client_of(properties) as cluster:
            Admin(cluster).describe_cluster()
    except AuthenticationFailed as error:
        return str(error)
    return ""


def test_producer_outlives_a_kdc_that_is_away(kafka: KerberosKafka) -> None:
    keytab = kafka.realm.keytab("alice/patient", *SHORT)
    properties = kafka.client(keytab_login("alice/patient", keytab), "REAUTH")
    with client_of(properties) as cluster:
        topic = create_topic(cluster)
        with BatchingProducer(cluster, BatchingConfig(acks=1, linger_ms=1)) as producer:
            kafka.realm.stop()
            try:
                futures = [producer.send(topic, b"0", partition=0)]

                def needs_the_kdc() -> bool:
                    futures.append(producer.send(topic, b"%d" % len(futures), partition=0))
                    producer.wait(futures[-1:], cluster.deadline(100))
                    return not futures[-1].done

                assert wait_until(needs_the_kdc, 20)
            finally:
                kafka.realm.start()
            producer.flush()
            assert [future.error for future in futures if future.error] == []
            assert [future.offset for future in futures] == list(range(len(futures)))


# Mistakes: each ends a command with its line.

MISTAKES = {
    "principal": "No key table entry found for bob@",
    "deleted principal": "Client 'gone@",
    "keytab": "none' not found; check principal and keyTab",
    "content of the keytab": "No key table entry found for alice@",
    "keytab with old keys": "; check principal and keyTab",
    "service": "Server kafak/localhost@",
    "service of another server": "the broker refuses the login",
    "no ticket": "No Kerberos credentials available",
    "mechanism": "has the login module of GSSAPI, not that of sasl.mechanism=PLAIN",
}
"""Words of the line that a command prints."""


@pytest.fixture(scope="module")
def wrong_ones(kafka: KerberosKafka) -> dict[str, Properties]:
    """The properties of each mistake."""
    realm = kafka.realm
    garbage, service = realm.directory / "garbage.keytab", "sasl.kerberos.service.name"
    garbage.write_bytes(b"\5\2garbage")
    old, gone = realm.keytab("old"), realm.keytab("gone")
    realm.change_keys("old")
    realm.delete("gone")
    realm.keytab("web/localhost")
    return {
        "principal": kafka.client(keytab_login("bob", kafka.keytab)),
        "deleted principal": kafka.client(keytab_login("gone", gone)),
        "keytab": kafka.client(keytab_login(USER, realm.directory / "none")),
        "content of the keytab": kafka.client(keytab_login(USER, garbage)),
        "keytab with old keys": kafka.client(keytab_login("old", old)),
        "service": kafka.client() | {service: "kafak"},
        "service of another server": kafka.client() | {service: "web"},
        "no ticket": kafka.client(kerberos_jaas(useTicketCache="true")),
        "mechanism": kafka.client() | {"sasl.mechanism": "PLAIN"},
    }


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_ends_a_command_with_its_line(
    wrong_ones: dict[str, Properties], tmp_path: Path, capfd: pytest.CaptureFixture[str], mistake: str
) -> None:
    check_mistake(CommandLine(capfd), tmp_path, wrong_ones[mistake], MISTAKES[mistake])


@contextlib.contextmanager
def silent_kdc() -> Iterator[int]:
    """Hold a port where no request is answered, and no TCP connection is accepted."""
    address = ("127.0.0.1", free_port())
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket() as tcp,
        socket.socket() as waiting,
    ):
        udp.bind(address)
        tcp.bind(address)
        tcp.listen(0)
        waiting.connect(address)  # no other fits into the queue
        yield address[1]


@pytest.mark.parametrize("is_silent", [False, True])
def test_kdc_that_is_away_ends_a_command_with_its_line(
    kafka: KerberosKafka,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    is_silent: bool,
) -> None:
    principal = f"alice/{'silent' if is_silent else 'away'}"
    properties = kafka.client(keytab_login(principal, kafka.realm.keytab(principal)))
    words = "no response within 3500 ms; check" if is_silent else "Cannot contact any KDC for realm"
    with silent_kdc() if is_silent else contextlib.nullcontext(free_port()) as port:
        monkeypatch.setenv("KRB5_CONFIG", str(kafka.realm.write_config("away.conf", port)))
        check_mistake(CommandLine(capfd), tmp_path, properties, f"the KDC cannot be reached: {words}")


@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_second_kdc_takes_the_place_of_a_silent_one(
    kafka: KerberosKafka, monkeypatch: pytest.MonkeyPatch, transport: str
) -> None:
    principal = f"alice/{transport}"
    keytab = kafka.realm.keytab(principal, "+requires_preauth")
    with silent_kdc() as port:
        path = kafka.realm.write_config_with_another_kdc("two.conf", port)
        if transport == "tcp":
            path.write_text(path.read_text().replace("[realms]", "  udp_preference_limit = 1\n[realms]"))
        monkeypatch.setenv("KRB5_CONFIG", str(path))
        assert error_of(kafka.client(keytab_login(principal, keytab))) == ""
