"""Stores that Kafka reads are read alike, and names of certificates are written as Java writes them."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_der_private_key, load_pem_private_key

from minikafka.base.errors import ConfigError
from minikafka.net.tls import read_file
from minikafka.security.certificates import distinguished_name, peer_name_of
from minikafka.security.der import DerValue
from minikafka.security.ssl_config import SslConfig
from tests.interop.clients import java
from tests.interop.driver import Program, Refused, decode, encode
from tests.support.der import attribute, name
from tests.support.tls import authority, broker_properties, ca_text, der_of, key_and_chain

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

RECORDED = Path(__file__).parents[1] / "data" / "key_stores"
ATTRIBUTES = [
    *(f"2.5.4.{number}" for number in (3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 17, 42)),
    "0.9.2342.19200300.100.1.25",
    "0.9.2342.19200300.100.1.1",
    "1.2.840.113549.1.9.1",
    "1.3.6.1.4.1.311.60.2.1.3",
    "2.999.3",
]
STRINGS = {0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1B: "ascii", 0x1E: "utf-16-be"}
OTHERS = [0x02, 0x03, 0x04, 0x12, 0x17, 0x1C, 0x30]
CHARACTERS = [*"ab Z09'()+,-./:=?#<>;\"\\@*&_%~\n\r\t\0\x7f", "é", "漢", "😀", "\u00a0"]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    prepare = java("MINIKAFKA_KAFKA3_LIBS", "kafka-clients-3.9.*.jar", "TlsStores")
    prepared = prepare(tmp_path_factory.mktemp("java"))
    program = Program(prepared.command, prepared.environment)
    yield program
    program.close()


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the recorded stores, and others that keytool makes now."""
    folder = tmp_path_factory.mktemp("stores")
    for file in RECORDED.iterdir():
        shutil.copy(file, folder)
    leaf = authority().issue_cert("localhost", common_name="pem")
    (folder / "pem").write_text(key_and_chain(leaf))
    (folder / "ca").write_text(ca_text(authority()))
    key = ["-genkeypair", "-alias", "k", "-keyalg", "EC", "-storepass", "changeit", "-dname", "CN=k"]
    for kind in ("JKS", "PKCS12"):
        keytool(folder, *key, "-keystore", f"own.{kind}", "-storetype", kind)
        trust = ["-importcert", "-noprompt", "-alias", "ca", "-file", "ca", "-storepass", "changeit"]
        keytool(folder, *trust, "-keystore", f"trusted.{kind}", "-storetype", kind)
        keytool(folder, *trust, "-keystore", f"own.{kind}", "-storetype", kind)
    return folder


def keytool(folder: Path, *arguments: str) -> None:
    program = shutil.which("keytool")
    if program is None:
        pytest.skip("keytool is not on PATH: a JDK is needed, 17 or newer")
    subprocess.run([program, *arguments], cwd=folder, check=True, capture_output=True, timeout=60)


def random_name(chance: random.Random) -> bytes:
    parts = []
    for _ in range(chance.randint(0, 4)):
        attributes = []
        for _ in range(chance.choice([1, 1, 1, 2, 3])):
            tag = chance.choice([*STRINGS, *STRINGS, *OTHERS])
            text = "".join(chance.choices(CHARACTERS, k=chance.randint(0, 6)))
            value = text.encode(STRINGS.get(tag, "utf-8"), "replace")
            attributes.append(attribute(chance.choice(ATTRIBUTES), value, tag))
        parts.append(attributes)
    return name(*parts)


def test_names_are_those_of_java(kafka: Program) -> None:
    chance = random.Random(20130102)
    for _ in range(3_000):
        encoded = random_name(chance)
        ((text,),) = kafka.ask("name", encode(encoded))
        assert distinguished_name(DerValue.parse(encoded)) == (decode(text) or b"").decode(), encoded.hex()


def test_name_of_a_certificate_is_that_of_java(kafka: Program) -> None:
    for der in (
        (RECORDED / "broker.der").read_bytes(),
        der_of(authority().issue_cert("a@b.example", common_name=' a,"b" ')),
    ):
        ((text,),) = kafka.ask("subject", encode(der))
        assert peer_name_of(der) == (decode(text) or b"").decode()


def read_by_kafka(kafka: Program, properties: dict[str, str]) -> tuple[list[object], set[bytes]]:
    """Return the key with its chain, and the trusted certificates."""
    words = [word for setting, value in properties.items() for word in (setting, encode(value.encode()))]
    keys: list[object] = []
    trusted: set[bytes] = set()
    for kind, *encoded in kafka.ask("stores", *words):
        values = [decode(word) or b"" for word in encoded]
        if kind == "key":
            keys += [numbers_of(load_der_private_key(values[0], None)), tuple(values[1:])]
        else:
            trusted |= set(values)
    return keys, trusted


def read_by_us(properties: dict[str, str]) -> tuple[list[object], set[bytes]]:
    config = SslConfig.from_properties(properties)
    material, trusted = config.key_material(read_file), config.trusted(read_file)
    keys: list[object] = []
    if material is not None:
        key = load_pem_private_key(material.private_key.value.encode(), None)
        keys = [numbers_of(key), material.chain]
    return keys, set(trusted or ())


def numbers_of(key: object) -> object:
    """Return the key without its form: that of Java has no public key in it."""
    return key.private_numbers()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "properties",
    [
        {"keystore.location": "own.JKS", "keystore.password": "changeit"},
        {"keystore.location": "own.PKCS12", "keystore.password": "changeit"},
        {"keystore.location": "own.PKCS12", "keystore.password": "changeit", "keystore.type": "PKCS12"},
        {"keystore.location": "chain.p12", "keystore.password": "changeit", "key.password": "changeit"},
        {"keystore.location": "pem", "keystore.type": "PEM"},
        {"truststore.location": "trusted.JKS", "truststore.password": "changeit"},
        {"truststore.location": "trusted.JKS"},
        {"truststore.location": "trusted.PKCS12", "truststore.password": "changeit"},
        {"truststore.location": "keys.jks", "truststore.password": "changeit"},
        {"truststore.location": "own.JKS", "truststore.password": "changeit"},
        {"truststore.location": "own.PKCS12", "truststore.password": "changeit"},
        {"truststore.location": "chain.p12", "truststore.password": "changeit"},
        {"truststore.location": "pem", "truststore.type": "PEM"},
    ],
    ids=lambda properties: "-".join(properties.values()),
)
def test_stores_are_read_as_kafka_reads_them(
    kafka: Program, stores: Path, properties: dict[str, str]
) -> None:
    given = {
        f"ssl.{setting}": str(stores / value) if setting.endswith("location") else value
        for setting, value in properties.items()
    }
    if any("trust" in setting for setting in properties):
        assert read_by_kafka(kafka, given)[1] == read_by_us(given)[1] != set()
    else:
        assert read_by_kafka(kafka, given)[0] == read_by_us(given)[0] != []


@pytest.mark.parametrize("joint", ["\n", " "], ids=["lines", "one line"])
def test_pem_in_properties_is_read_as_kafka_reads_it(kafka: Program, joint: str) -> None:
    properties = {setting: joint.join(value.split("\n")) for setting, value in broker_properties().items()}
    keys, trusted = read_by_us(properties)
    assert keys
    assert (keys, trusted) == read_by_kafka(kafka, properties)


VALUES = {
    "keystore.type": ["JKS", "PKCS12", "PEM", "PEM"],
    "keystore.location": ["pem", "own.JKS"],
    "keystore.password": ["changeit"],
    "keystore.key": [],
    "keystore.certificate.chain": [],
    "truststore.type": ["JKS", "PEM"],
    "truststore.location": ["ca", "trusted.JKS"],
    "truststore.password": ["changeit"],
    "truststore.certificates": [],
}


def test_settings_that_kafka_takes_are_taken_with_the_same_result(kafka: Program, stores: Path) -> None:
    """Beyond these, ours takes a store of another format than its type, as the bytes tell the format."""
    chance, taken = random.Random(20130103), 0
    for _ in range(1_500):
        given = {
            f"ssl.{setting}": chance.choice(values) if values else (stores / "pem").read_text()
            for setting, values in VALUES.items()
            if chance.random() < 0.3
        }
        for setting in given.keys() & {"ssl.keystore.location", "ssl.truststore.location"}:
            given[setting] = str(stores / given[setting])
        try:
            expected = read_by_kafka(kafka, given)
        except Refused as refused:
            if "InvalidConfigurationException" not in str(refused) or "Failed to load" in str(refused):
                continue
            if "key store password is not specified" in str(refused):
                continue  # the file may be PEM
            with pytest.raises(ConfigError):
                read_by_us(given)
            continue
        assert read_by_us(given) == expected, given
        taken += 1
    assert taken > 100
