"""Certificates (X.509): the names in them, as Kafka's principals and as people read them, and their validity.

``peer_name_of`` gives the subject as Java's ``X500Principal.getName()`` does, so that ACLs and
``ssl.principal.mapping.rules`` made for Apache Kafka hold here too: RFC 2253, the last part of the name
first. Java knows nine types of attributes by name. The value of any other one, such as ``emailAddress`` or
``serialNumber``, is its encoding in hexadecimal digits: ``1.2.840.113549.1.9.1=#1609…``.

Nothing here checks a signature: OpenSSL does so in the handshake.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone

from minikafka.base.errors import StoreError
from minikafka.security.der import GENERALIZED_TIME, SEQUENCE, SET, UTC_TIME, DerValue, object_identifier

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
"""The attributes that RFC 2253 names."""
_STRINGS = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
"""Tags of the strings that Java shows as text: UTF8, Printable, T61, IA5, General and BMP."""
_ESCAPED = re.compile(r'[,=+<>#;"\\]')
_BLANKS = re.compile(r"\A[ \r]+|[ \r]+\Z")
_COMMON_NAME = "2.5.4.3"
_ALTERNATIVE_NAMES = "2.5.29.17"
_VERSION, _EXTENSIONS = 0xA0, 0xA3
_DNS_NAME, _IP_ADDRESS = 0x82, 0x87
_TIME = re.compile(rb"(?P<year>\d{2}|\d{4})(?P<rest>\d{10})Z")
_CENTURY_OF = 50


@dataclass(frozen=True, slots=True)
class Certificate:
    """The content of a certificate about its owner."""

    subject: DerValue
    issuer: DerValue
    not_before: datetime
    not_after: datetime
    dns_names: tuple[str, ...]
    """The host names of its alternative names; without any, hosts are compared with the common name."""
    ip_addresses: tuple[str, ...]

    @classmethod
    def parse(cls, der: bytes) -> Certificate:
        """Parse a certificate in DER. Raises StoreError."""
        try:
            return cls._parse(der)
        except StopIteration:
            raise StoreError("the certificate is damaged: a part of it is empty") from None
        except (StoreError, ValueError) as error:
            raise StoreError(f"the certificate is damaged: {error}") from None

    @classmethod
    def _parse(cls, der: bytes) -> Certificate:
        body = next(DerValue.parse(der).expect(SEQUENCE).values()).expect(SEQUENCE)
        parts = [part for part in body.values() if part.tag != _VERSION]
        if len(parts) < 6:  # serial number, algorithm, issuer, validity, subject, key
            raise StoreError(f"it has {len(parts)} of 6 parts")
        not_before, not_after = (_time(value) for value in parts[3].expect(SEQUENCE).values())
        extensions = next((part for part in parts[6:] if part.tag == _EXTENSIONS), None)
        dns_names, ip_addresses = ((), ()) if extensions is None else _alternative_names(extensions)
        return cls(
            parts[4].expect(SEQUENCE),
            parts[2].expect(SEQUENCE),
            not_before,
            not_after,
            dns_names,
            ip_addresses,
        )

    @property
    def name(self) -> str:
        """The subject, see ``peer_name_of``."""
        return distinguished_name(self.subject)

    @property
    def issuer_name(self) -> str:
        """The name of the CA that signed the certificate."""
        return distinguished_name(self.issuer)

    @property
    def is_self_issued(self) -> bool:
        """True if it names its own subject as its issuer."""
        return self.subject.encoded == self.issuer.encoded

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names that a host with this certificate can have."""
        if self.dns_names or self.ip_addresses:
            return (*self.dns_names, *self.ip_addresses)
        return tuple(
            value.content.decode("utf-8", "replace")
            for parts in _relative_names(self.subject)
            for kind, value in parts
            if kind == _COMMON_NAME
        )

    def is_of(self, host: str) -> bool:
        """Return True if clients that connect to this name or address accept the certificate."""
        try:
            wanted = str(ipaddress.ip_address(host))
        except ValueError:
            wanted = _ascii(host)
        names = {_ascii(name) for name in self.hosts}
        return wanted in names or f"*.{wanted.partition('.')[2]}" in names

    def validity_fault(self, now: datetime) -> str | None:
        """Return why the certificate is not valid at ``now``; None if it is."""
        if now < self.not_before:
            return f"the certificate of {self.name} is not valid before {_shown(self.not_before)}"
        if now > self.not_after:
            return self.expiry(now)
        return None

    def days_left(self, now: datetime) -> int:
        """Return the whole days until the certificate expires; below 0 if it has expired."""
        return (self.not_after - now).days

    def expiry(self, now: datetime) -> str:
        """Return when the certificate expires or expired, as a clause."""
        days = self.days_left(now)
        if days < 0:
            return f"the certificate of {self.name} expired at {_shown(self.not_after)}"
        left = f"{days} day{'' if days == 1 else 's'}" if days else "less than a day"
        return f"the certificate of {self.name} expires at {_shown(self.not_after)}, in {left}"


def _ascii(host: str) -> str:
    """Return a name of a host as certificates have it."""
    with suppress(UnicodeError):
        host = host.encode("idna").decode("ascii")
    return host.lower()


def peer_name_of(der: bytes) -> str:
    """Return the subject of a certificate in DER as Java's ``X500Principal.getName()`` writes it, such as
    ``CN=alice,OU=sales``. Raises StoreError.
    """
    try:
        return Certificate.parse(der).name
    except ValueError as error:  # of a subject that is no list of attributes
        raise StoreError(f"the certificate is damaged: {error}") from None


def distinguished_name(name: DerValue) -> str:
    """Return a name as Java writes it by RFC 2253. Raises StoreError."""
    parts = [
        "+".join(_attribute(kind, value) for kind, value in attributes)
        for attributes in _relative_names(name)
    ]
    return ",".join(reversed(parts))


def _relative_names(name: DerValue) -> Iterator[list[tuple[str, DerValue]]]:
    """Yield the parts of a name: the attributes of each, with their types."""
    for part in name.values():
        attributes = []
        for attribute in part.expect(SET).values():
            kind, value = attribute.expect(SEQUENCE).values()
            attributes.append((object_identifier(kind.content), value))
        yield attributes


def _attribute(kind: str, value: DerValue) -> str:
    keyword = _KEYWORDS.get(kind)
    if keyword is None or value.tag not in _STRINGS:
        return f"{keyword or kind}=#{value.encoded.hex()}"
    text = _ESCAPED.sub(r"\\\g<0>", value.content.decode("utf-8", "replace")).replace("\0", r"\00")
    return f"{keyword}={_BLANKS.sub(_with_backslashes, text)}"


def _with_backslashes(blanks: re.Match[str]) -> str:
    return "".join(f"\\{blank}" for blank in blanks[0])


def _alternative_names(extensions: DerValue) -> tuple[tuple[str, ...], tuple[str, ...]]:
    dns_names, ip_addresses = [], []
    for extension in next(extensions.values()).expect(SEQUENCE).values():
        kind, *_, value = extension.expect(SEQUENCE).values()
        if object_identifier(kind.content) != _ALTERNATIVE_NAMES:
            continue
        for name in DerValue.parse(value.content).expect(SEQUENCE).values():
            if name.tag == _DNS_NAME:
                dns_names.append(name.content.decode("ascii", "replace"))
            elif name.tag == _IP_ADDRESS:
                ip_addresses.append(str(ipaddress.ip_address(name.content)))
    return tuple(dns_names), tuple(ip_addresses)


def _time(value: DerValue) -> datetime:
    found = _TIME.fullmatch(value.content)
    if value.tag not in (UTC_TIME, GENERALIZED_TIME) or found is None:
        raise StoreError(f"a time is {value.content[:20]!r}")
    year = int(found["year"])
    if value.tag == UTC_TIME:
        year += 1900 if year >= _CENTURY_OF else 2000
    return datetime.strptime(f"{year:04}{found['rest'].decode()}", "%Y%m%d%H%M%S").replace(
        tzinfo=timezone.utc
    )


def _shown(time: datetime) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC")
