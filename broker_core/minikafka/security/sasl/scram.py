"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), and the credentials that brokers keep of users.

    client first   n,[a=ID],n=USER,r=NONCE[,extensions]
    server first   r=NONCE+NONCE,s=SALT,i=ITERATIONS
    client final   c=GS2 HEADER,r=NONCE+NONCE,p=PROOF
    server final   v=SIGNATURE

Neither side sends the password, and the server does not know it: it has a salted hash of what proves it
(``ScramCredential``), and the client learns from the signature that the server has it.

As in Kafka there is no channel binding, and user names and passwords are UTF-8 without SASLprep. Unlike
Kafka's, the server does not tell which users there are: an unknown one gets a salt, always the same, and
fails at the end like a wrong password, after the same work. Iterations have limits on both sides: too few
make guessing cheap, and too many are an attack on the client.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from minikafka.base.errors import ConfigError
from minikafka.base.secrets import Password
from minikafka.security.sasl.mechanism import SaslClient, SaslServer

MIN_ITERATIONS = 4096
MAX_ITERATIONS = 1_000_000
MAX_NEW_ITERATIONS = 16_384
"""Kafka's limit for new credentials: a broker does this work at each login, also for a wrong password."""
TOKEN_AUTHENTICATION = "tokenauth"
"""The extension that says that the user is the id of a delegation token."""

MAX_MESSAGE_BYTES = 16_384
"""The limit of a client's message: names are short, and anybody may have the broker parse a long one."""

_NONCE_BITS = 130
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_NAME = r"(?:[^=,\0]|=2C|=3D)+"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"[a-zA-Z0-9/+]*={0,2}"
_EXTENSIONS = r"(?P<extensions>(?:,[A-Za-z]+=[^,\0]+)*)"
_CLIENT_FIRST = re.compile(
    rf"n,(?:a=(?P<authzid>{_NAME}))?,(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_NONCE}){_EXTENSIONS})"
)
_SERVER_FIRST = re.compile(
    rf"r=(?P<nonce>{_NONCE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,9}}){_EXTENSIONS}"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<without_proof>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_NONCE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL = re.compile(rf"(?:v=(?P<signature>{_BASE64})|e=(?P<error>[^=,\0]+)){_EXTENSIONS}")
_EXTENSION = re.compile(r"(?P<key>[A-Za-z]+)=(?P<value>[^,\0]+)")


class ScramMechanism(Enum):
    """A mechanism, which is a hash function."""

    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"

    @property
    def number(self) -> int:
        """Kafka's number of it in requests about users."""
        return {ScramMechanism.SCRAM_SHA_256: 1, ScramMechanism.SCRAM_SHA_512: 2}[self]

    @property
    def hash_name(self) -> str:
        """The name of the hash function in ``hashlib``."""
        return self.value.removeprefix("SCRAM-").replace("-", "").lower()

    @property
    def digest_size(self) -> int:
        """The length of hashes in bytes."""
        return int(self.value.rpartition("-")[2]) // 8

    def hash(self, data: bytes) -> bytes:
        """RFC 5802's H."""
        return hashlib.new(self.hash_name, data).digest()

    def hmac(self, key: bytes, data: bytes) -> bytes:
        """RFC 5802's HMAC."""
        return hmac.digest(key, data, self.hash_name)

    def salted_password(self, password: bytes, salt: bytes, iterations: int) -> bytes:
        """RFC 5802's Hi."""
        return hashlib.pbkdf2_hmac(self.hash_name, password, salt, iterations)


def base36(entropy: bytes) -> str:
    """Return 130 bits of ``entropy``, at least 17 bytes, as text: Kafka's form of nonces and salts."""
    if len(entropy) * 8 < _NONCE_BITS:
        raise ValueError(f"expected at least 17 bytes, got {len(entropy)}")
    number = int.from_bytes(entropy, "big") & ((1 << _NONCE_BITS) - 1)
    digits = []
    while number:
        number, digit = divmod(number, 36)
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits)).rjust(1, "0")


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """The credential of a user, as a broker keeps it."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    @classmethod
    def create(
        cls, mechanism: ScramMechanism, password: Password, salt: bytes, iterations: int
    ) -> ScramCredential:
        """Return the credential for a password. A salt must not be used twice."""
        salted = mechanism.salted_password(password.value.encode("utf-8"), salt, iterations)
        return cls.of_salted_password(mechanism, salted, salt, iterations)

    @classmethod
    def of_salted_password(
        cls, mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int
    ) -> ScramCredential:
        """Return the credential for RFC 5802's SaltedPassword."""
        client_key = mechanism.hmac(salted, b"Client Key")
        return cls(salt, mechanism.hash(client_key), mechanism.hmac(salted, b"Server Key"), iterations)

    @classmethod
    def parse(cls, mechanism: ScramMechanism, text: str) -> ScramCredential:
        """Parse the value that Kafka keeps in ``/config/users/NAME`` under the mechanism's name.

        Raises ConfigError, also for iterations outside the limits.
        """
        with contextlib.suppress(KeyError, ValueError):
            fields = dict(part.split("=", 1) for part in text.split(","))
            salt, stored_key, server_key = (
                b64decode(fields[name], validate=True) for name in ("salt", "stored_key", "server_key")
            )
            credential = cls(salt, stored_key, server_key, int(fields["iterations"]))
            if len(fields) == 4 and credential.is_valid(mechanism):
                return credential
        raise ConfigError(
            mechanism.value,
            Password(text),
            f"must have a salt, a stored_key and a server_key of {mechanism.digest_size} bytes in base64, "
            f"and iterations from {MIN_ITERATIONS} to {MAX_ITERATIONS}",
        )

    def to_text(self) -> str:
        """Return the value for ``/config/users/NAME``. It is a secret: guesses can be tested with it."""
        salt, stored_key, server_key = (
            b64encode(value).decode("ascii") for value in (self.salt, self.stored_key, self.server_key)
        )
        return f"salt={salt},stored_key={stored_key},server_key={server_key},iterations={self.iterations}"

    def is_valid(self, mechanism: ScramMechanism) -> bool:
        """Return True if a client could authenticate with it."""
        return (
            MIN_ITERATIONS <= self.iterations <= MAX_ITERATIONS
            and len(self.stored_key) == len(self.server_key) == mechanism.digest_size
            and len(self.salt) > 0
        )


def _no_iterations(mechanism: ScramMechanism) -> Sequence[int]:
    return ()


@dataclass(frozen=True, slots=True)
class UnknownUsers:
    """Makes credentials for users that do not exist, the same ones whenever somebody asks."""

    secret: bytes = field(repr=False)
    """A secret that all brokers of a cluster share: another salt on another broker would tell."""
    iterations_of: Callable[[ScramMechanism], Sequence[int]] = field(default=_no_iterations, repr=False)
    """Returns the iterations of the users that exist, each as often as it occurs, in ascending order. Unknown
    users get each of them as often: a number that only some user has would tell that it exists.
    """

    def credential(self, mechanism: ScramMechanism, username: str) -> ScramCredential:
        """Return a credential that no password fits, with a salt as Kafka makes them."""
        salt, stored_key, server_key, choice = (
            mechanism.hmac(self.secret, f"{mechanism.value},{purpose},{username}".encode())
            for purpose in ("salt", "stored_key", "server_key", "iterations")
        )
        existing = self.iterations_of(mechanism) or (MIN_ITERATIONS,)
        iterations = existing[int.from_bytes(choice[:8], "big") * len(existing) >> 64]
        return ScramCredential(base36(salt).encode("ascii"), stored_key, server_key, iterations)


class ScramSaslClient(SaslClient):
    """The client's side of SCRAM."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        username: str,
        password: Password,
        nonce: str,
        extensions: Mapping[str, str] | None = None,
    ) -> None:
        """nonce: ``base36`` of random bytes, of this exchange only."""
        super().__init__(mechanism.value, password)
        self._mechanism = mechanism
        self._username = username
        self._password = password
        self._nonce = nonce
        self._extensions = "".join(f",{key}={value}" for key, value in (extensions or {}).items())
        self._server_signature: bytes | None = None

    def _initial_response(self) -> bytes:
        message = f"n,,{self._bare()}"
        if _CLIENT_FIRST.fullmatch(message) is None:
            raise self._failed(
                "the user name is empty or contains a NUL character, or an extension is invalid"
            )
        return self._encoded(message)

    def _bare(self) -> str:
        name = self._username.replace("=", "=3D").replace(",", "=2C")
        return f"n={name},r={self._nonce}{self._extensions}"

    def _evaluate(self, challenge: bytes) -> bytes | None:
        if self._server_signature is None:
            return self._client_final(challenge)
        final = self._parsed(_SERVER_FINAL, challenge, "final")
        if final["error"]:
            raise self._failed(f"the server refuses: {final['error']}")
        if not hmac.compare_digest(_from_base64(final["signature"]), self._server_signature):
            raise self._failed("wrong signature: the server does not know the password of the user")
        self.is_complete = True
        return None

    def _client_final(self, challenge: bytes) -> bytes:
        first = self._parsed(_SERVER_FIRST, challenge, "first")
        nonce, iterations = first["nonce"], int(first["iterations"])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise self._failed("the server's nonce does not begin with the client's, or adds nothing to it")
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
            raise self._failed(
                f"the server asks for {iterations} iterations: expected {MIN_ITERATIONS} to {MAX_ITERATIONS}"
            )
        salt = _from_base64(first["salt"])
        if not salt:
            raise self._failed("the server's salt is malformed")
        without_proof = f"c=biws,r={nonce}"  # n,, in base64
        message = ",".join((self._bare(), challenge.decode("utf-8"), without_proof)).encode("utf-8")
        password = self._encoded(self._password.value)
        mechanism = self._mechanism
        salted = mechanism.salted_password(password, salt, iterations)
        client_key = mechanism.hmac(salted, b"Client Key")
        proof = _xor(client_key, mechanism.hmac(mechanism.hash(client_key), message))
        self._server_signature = mechanism.hmac(mechanism.hmac(salted, b"Server Key"), message)
        return f"{without_proof},p={b64encode(proof).decode('ascii')}".encode("ascii")

    def _parsed(self, pattern: re.Pattern[str], challenge: bytes, which: str) -> re.Match[str]:
        try:
            found = pattern.fullmatch(challenge.decode("utf-8"))
        except UnicodeDecodeError:
            found = None
        if found is None:
            raise self._failed(f"the {which} message of the server is malformed")
        return found


class ScramSaslServer(SaslServer):
    """The server's side of SCRAM."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        credential_of: Callable[[str], ScramCredential | None],
        unknown_users: UnknownUsers,
        nonce: str,
    ) -> None:
        """credential_of: returns the credential of a user; None for an unknown one.

        nonce: ``base36`` of random bytes, of this exchange only.
        """
        super().__init__(mechanism.value)
        self.extensions: Mapping[str, str] = {}
        """The extensions in the client's first message. Kafka's servers know only ``tokenauth``."""
        self._mechanism = mechanism
        self._credential_of = credential_of
        self._unknown_users = unknown_users
        self._nonce = nonce
        self._exchange: _ServerExchange | None = None

    def _evaluate(self, response: bytes) -> bytes:
        if len(response) > MAX_MESSAGE_BYTES:
            raise self._failed(f"the client's message has {len(response)} of {MAX_MESSAGE_BYTES} bytes")
        text = self._decoded(response)
        return (
            self._server_first(text) if self._exchange is None else self._server_final(self._exchange, text)
        )

    def _server_first(self, text: str) -> bytes:
        first = _CLIENT_FIRST.fullmatch(text)
        if first is None:
            binding = text.startswith(("y,", "p="))
            raise self._failed(
                "channel binding is not supported" if binding else "the client's first message is malformed"
            )
        username = _from_name(first["name"])
        self.extensions = {found["key"]: found["value"] for found in _EXTENSION.finditer(first["extensions"])}
        known = self._credential_of(username)
        made_up = self._unknown_users.credential(
            self._mechanism, username
        )  # for known ones too: it takes time
        denial = self._denial(username, known, made_up, _from_name(first["authzid"] or ""))
        # The salt of a known user is the same whatever else is denied: another one would tell that it exists.
        credential = known if known is not None and known.is_valid(self._mechanism) else made_up
        nonce = first["nonce"] + self._nonce
        challenge = f"r={nonce},s={b64encode(credential.salt).decode('ascii')},i={credential.iterations}"
        header = b64encode(text[: first.start("bare")].encode("utf-8")).decode("ascii")
        self._exchange = _ServerExchange(
            username, credential, denial, nonce, header, f"{first['bare']},{challenge}"
        )
        return challenge.encode("utf-8")

    def _denial(
        self, username: str, known: ScramCredential | None, made_up: ScramCredential, authorization_id: str
    ) -> str:
        """Return why the exchange will fail whatever the client proves; empty if it need not.

        All is looked at in any case, so that the time does not tell what is found.
        """
        credential = known or made_up
        is_token = self.extensions.get(TOKEN_AUTHENTICATION, "").lower() == "true"
        weak = f"the credential of user {username!r} is invalid ({credential.iterations} iterations)"
        reasons = {
            f"delegation tokens are not supported (token id {username!r})": is_token,
            f"user {username!r} is unknown": known is None,
            weak: not credential.is_valid(self._mechanism),
            f"user {username!r} may not act as {authorization_id!r}": authorization_id not in ("", username),
        }
        return next((reason for reason, holds in reasons.items() if holds), "")

    def _server_final(self, exchange: _ServerExchange, text: str) -> bytes:
        final = _CLIENT_FINAL.fullmatch(text)
        if final is None:
            raise self._failed("the client's final message is malformed")
        if final["nonce"] != exchange.nonce or final["binding"] != exchange.header:
            raise self._failed("the client's final message does not belong to its first one")
        proof = _from_base64(final["proof"])
        if len(proof) != self._mechanism.digest_size:
            raise self._failed(f"the client's proof has {len(proof)} bytes")
        mechanism, credential = self._mechanism, exchange.credential
        message = f"{exchange.first_messages},{final['without_proof']}".encode()
        client_key = _xor(proof, mechanism.hmac(credential.stored_key, message))
        fits = hmac.compare_digest(mechanism.hash(client_key), credential.stored_key)
        if exchange.denial or not fits:
            raise self._failed(exchange.denial or f"wrong password of user {exchange.username!r}")
        self._accept(exchange.username)
        signature = b64encode(mechanism.hmac(credential.server_key, message)).decode("ascii")
        return f"v={signature}".encode("ascii")


@dataclass(frozen=True, slots=True)
class _ServerExchange:
    """An exchange between the two messages of the client."""

    username: str
    credential: ScramCredential
    denial: str
    nonce: str
    header: str
    """The GS2 header in base64, which the client repeats."""
    first_messages: str
    """The first messages of client and server as they are signed."""


def _from_name(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _from_base64(text: str) -> bytes:
    """Return the bytes; none for invalid text, which fits nothing."""
    try:
        return b64decode(text, validate=True)
    except ValueError:
        return b""


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
