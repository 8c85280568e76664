"""The settings of TLS, ``ssl.…``: the same for clients, listeners, and connections between brokers.

A store is given as a file, whose format its first bytes tell, or as PEM in the properties themselves
(KIP-651). Files are read by a function that is passed in: on an executor, they are those of its host.

Kafka's rules hold: a store in PEM has no password, and what is given twice, or in part, is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, TypeVar

from minikafka.base.config.config_def import AbstractConfig, setting
from minikafka.base.config.types import PASSWORD, TEXT, WORDS, ConfigType, Type, choice, text_type
from minikafka.base.errors import ConfigError, MissingStorePassword, StoreError, WrongStorePassword
from minikafka.base.secrets import Password
from minikafka.security.cipher_suites import check_suite
from minikafka.security.principals import SslPrincipalMapper
from minikafka.security.stores.key_material import KeyMaterial, certificates_in, trusted_certificates

ReadFile = Callable[[str], bytes]
"""Returns the content of a file. Raises OSError."""
Found = TypeVar("Found")

PEM = "PEM"
TLS_1_2, TLS_1_3 = "TLSv1.2", "TLSv1.3"
_OLD_PROTOCOLS = frozenset({"sslv2", "sslv2hello", "sslv3", "ssl", "tlsv1", "tlsv1.0", "tlsv1.1"})
_JAVA_ONLY = "TLS is that of OpenSSL here, not of Java"


class ClientAuth(Enum):
    """``ssl.client.auth``: the demand of a listener for certificates of clients."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


def _protocol(word: str) -> str:
    for known in (TLS_1_2, TLS_1_3):
        if word.lower() == known.lower():
            return known
    if word.lower() in _OLD_PROTOCOLS:
        raise ValueError(f"{word} is not secure any more: leave {TLS_1_2}, {TLS_1_3} or both")
    raise ValueError


def _protocols(given: object) -> tuple[str, ...]:
    words = WORDS.convert(given)
    if not words:
        raise ValueError
    return tuple(dict.fromkeys(map(_protocol, words)))


def _cipher_suites(given: object) -> tuple[str, ...]:
    words = WORDS.convert(given)
    for word in words:
        check_suite(word)
    return tuple(words)


def _mapper(given: object) -> SslPrincipalMapper:
    return given if isinstance(given, SslPrincipalMapper) else SslPrincipalMapper.parse(str(given))


_KEY, _CHAIN = "ssl.keystore.key", "ssl.keystore.certificate.chain"
STORE_TYPE = choice({"JKS": "JKS", "PKCS12": "PKCS12", PEM: PEM})


@dataclass(frozen=True, slots=True)
class SslConfig(AbstractConfig):
    """The settings of one end of TLS connections. Raises ConfigErrors with all invalid settings."""

    UNSUPPORTED: ClassVar[Mapping[str, str]] = {
        "ssl.engine.factory.class": _JAVA_ONLY,
        "ssl.keymanager.algorithm": _JAVA_ONLY,
        "ssl.provider": _JAVA_ONLY,
        "ssl.secure.random.implementation": _JAVA_ONLY,
        "ssl.trustmanager.algorithm": _JAVA_ONLY,
    }
    CHECKED: ClassVar[Mapping[str, Type]] = {
        "ssl.protocol": text_type(
            f"TLS, {TLS_1_2} or {TLS_1_3}", lambda text: "TLS" if text.upper() == "TLS" else _protocol(text)
        )
    }

    keystore_type: str = setting(
        "ssl.keystore.type",
        STORE_TYPE,
        "JKS",
        "The format of the key store: PEM has no password; its first bytes tell JKS from PKCS12.",
    )
    keystore_location: str | None = setting(
        "ssl.keystore.location",
        TEXT,
        None,
        "The file of the key store: the private key and its certificates, in PEM in one file.",
    )
    keystore_password: Password | None = setting(
        "ssl.keystore.password", PASSWORD, None, "The password of the key store."
    )
    keystore_key: Password | None = setting(
        "ssl.keystore.key", PASSWORD, None, "The private key itself, in PEM."
    )
    keystore_certificate_chain: Password | None = setting(
        "ssl.keystore.certificate.chain",
        PASSWORD,
        None,
        "The certificates of ssl.keystore.key in PEM, its own first.",
    )
    key_password: Password | None = setting(
        "ssl.key.password",
        PASSWORD,
        None,
        "The password of the private key; by default that of its JKS or PKCS12 store.",
    )
    truststore_type: str = setting(
        "ssl.truststore.type", STORE_TYPE, "JKS", "The format of the trust store, as for ssl.keystore.type."
    )
    truststore_location: str | None = setting(
        "ssl.truststore.location",
        TEXT,
        None,
        "The file with the certificates of the CAs that are trusted; by default those of the system.",
    )
    truststore_password: Password | None = setting(
        "ssl.truststore.password",
        PASSWORD,
        None,
        "The password of the trust store; without it a JKS store is read unchecked.",
    )
    truststore_certificates: Password | None = setting(
        "ssl.truststore.certificates", PASSWORD, None, "The certificates of the CAs that are trusted, in PEM."
    )
    endpoint_identification_algorithm: str = setting(
        "ssl.endpoint.identification.algorithm",
        choice({"https": "https", "": ""}, "https, or empty: host names are not checked"),
        "https",
        "https: the certificate of the server must have its host name; empty: it need not.",
    )
    enabled_protocols: tuple[str, ...] = setting(
        "ssl.enabled.protocols",
        Type(f"a list of {TLS_1_2} and {TLS_1_3}", _protocols, ConfigType.LIST),
        (TLS_1_2, TLS_1_3),
        "The versions of TLS that may be used.",
    )
    cipher_suites: tuple[str, ...] = setting(
        "ssl.cipher.suites",
        Type("a list of cipher suites", _cipher_suites, ConfigType.LIST),
        (),
        "The cipher suites that may be used, by IANA's names; empty: those of OpenSSL.",
    )
    client_auth: ClientAuth = setting(
        "ssl.client.auth",
        choice({auth.value: auth for auth in ClientAuth}),
        ClientAuth.NONE,
        "Whether clients must, may or need not have a certificate that is trusted.",
    )
    principal_mapping_rules: SslPrincipalMapper = setting(
        "ssl.principal.mapping.rules",
        Type("rules", _mapper),
        SslPrincipalMapper.parse("DEFAULT"),
        "Rules that make the principal of a client from the name of its certificate.",
    )

    def _conflicts(self) -> Iterator[tuple[str, ConfigError]]:
        yield from _half_given(_KEY, self.keystore_key, _CHAIN, self.keystore_certificate_chain)
        yield from self._keystore.conflicts()
        yield from self._truststore.conflicts()

    @property
    def _keystore(self) -> _Store:
        inline = _KEY if self.keystore_key is not None else None
        if inline is None and self.keystore_certificate_chain is not None:
            inline = _CHAIN
        return _Store(
            "ssl.keystore", inline, self.keystore_type, self.keystore_location, self.keystore_password
        )

    @property
    def _truststore(self) -> _Store:
        inline = None if self.truststore_certificates is None else "ssl.truststore.certificates"
        return _Store(
            "ssl.truststore", inline, self.truststore_type, self.truststore_location, self.truststore_password
        )

    @property
    def keystore_property(self) -> str:
        """The setting that has the private key, or names its file."""
        return self._keystore.property

    @property
    def truststore_property(self) -> str:
        """The setting that has the certificates of the CAs, or names their file."""
        return self._truststore.property

    @property
    def has_keys(self) -> bool:
        """True if there is a private key."""
        return self._keystore.is_given

    @property
    def has_trust(self) -> bool:
        """True if there is a trust store; otherwise the CAs of the system are trusted."""
        return self._truststore.is_given

    @property
    def files(self) -> tuple[str, ...]:
        """The files of the stores."""
        return tuple(file for file in (self.keystore_location, self.truststore_location) if file is not None)

    def key_material(self, read: ReadFile) -> KeyMaterial | None:
        """Return the key and its certificates; None if none are given. Raises ConfigError."""
        if self.keystore_key is not None and self.keystore_certificate_chain is not None:
            key, chain = self.keystore_key.value, self.keystore_certificate_chain.value
            return self._keystore.open(lambda: KeyMaterial.from_pem(key, chain, self.key_password))
        location, password = self.keystore_location, self.keystore_password
        if location is None:
            return None
        return self._keystore.open(
            lambda: KeyMaterial.from_store(read(location), password, self.key_password)
        )

    def trusted(self, read: ReadFile) -> tuple[bytes, ...] | None:
        """Return the certificates of the CAs that are trusted, in DER; None: those of the system.

        Raises ConfigError.
        """
        if self.truststore_certificates is not None:
            text = self.truststore_certificates.value
            return self._truststore.open(lambda: certificates_in(text))
        location, password = self.truststore_location, self.truststore_password
        if location is None:
            return None
        return self._truststore.open(lambda: trusted_certificates(read(location), password))


@dataclass(frozen=True, slots=True)
class _Store:
    """The settings of the key store or the trust store."""

    name: str
    inline: str | None
    """The setting that has its content; None if it is a file."""
    type: str
    location: str | None
    password: Password | None

    @property
    def is_given(self) -> bool:
        return self.inline is not None or self.location is not None

    @property
    def property(self) -> str:
        return self.inline or f"{self.name}.location"

    def conflicts(self) -> Iterator[tuple[str, ConfigError]]:
        """Yield the faults that Kafka's ``DefaultSslEngineFactory`` finds too."""
        inline, password = self.inline, f"{self.name}.password"
        if inline is not None and self.location is not None:
            fault = ConfigError(f"{self.name}.location", self.location, f"must not be given with {inline}")
            yield inline, fault
        if inline is not None and self.type != PEM:
            yield inline, ConfigError(f"{self.name}.type", self.type, f"must be PEM with {inline}")
        if self.password is None:
            return
        if self.type == PEM or inline is not None:
            key = "" if self.name == "ssl.truststore" else "; that of its key is ssl.key.password"
            fault = ConfigError(password, self.password, f"must not be given: PEM has no password{key}")
            yield f"{self.name}.type", fault
        elif self.location is None:
            yield password, ConfigError(f"{self.name}.location", None, f"must be given with {password}")

    def open(self, load: Callable[[], Found]) -> Found:
        """Return what ``load`` finds in the store. Raises ConfigError."""
        try:
            return load()
        except OSError as error:
            text = f"cannot be read: {error.strerror or error}"
        except MissingStorePassword as error:
            text = f"{error}; set {self.name}.password"
        except WrongStorePassword as error:
            text = f"{error}; check {' and '.join(self._passwords())}"
        except StoreError as error:
            text = str(error)
        raise ConfigError(self.property, None if self.inline else self.location, text)

    def _passwords(self) -> Iterator[str]:
        if self.type != PEM:
            yield f"{self.name}.password"
        if self.name == "ssl.keystore":
            yield "ssl.key.password"


def _half_given(
    one: str, value: object, other: str, other_value: object
) -> Iterator[tuple[str, ConfigError]]:
    """Yield the fault of one of two settings that is given without the other."""
    if value is not None and other_value is None:
        yield one, ConfigError(other, None, f"must be given with {one}")
    if other_value is not None and value is None:
        yield other, ConfigError(one, None, f"must be given with {other}")
