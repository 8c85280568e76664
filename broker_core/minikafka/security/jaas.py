"""JAAS configurations in a setting: ``sasl.jaas.config`` of clients, and the same per listener of brokers.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="a;b=c";

The text is a class, a control flag, options, and a semicolon, by the rules of Java's ``StreamTokenizer`` as
the newest Kafka sets it up (releases up to 4.3 also want quotes around values with digits or other signs):

* words hold everything but blanks, quotes, ``;``, ``=`` and ``/``;
* values with these stand in double or single quotes, on one line, with Java's escapes (``\\"``, ``\\n``,
  ``\\101``);
* ``// …`` and ``/* … */`` are comments.

It is stricter in three points, where Java would continue with another value than the one that is meant: a
single ``/`` outside quotes (Java's comment until the end of the line), a quote without its end, and a comment
without its end are errors.

All values are secrets, as nobody can know which are not. No error shows a part of the text: a blank in a
password without quotes makes the rest of it look like a name. Errors give the position instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from minikafka.base.errors import ConfigError
from minikafka.base.secrets import Password

LOGIN_MODULES = {
    "GSSAPI": "com.sun.security.auth.module.Krb5LoginModule",
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
    "AWS_MSK_IAM": "software.amazon.msk.auth.iam.IAMLoginModule",
}
"""Mechanism -> the class of its login module."""


def login_text(mechanism: str, user: str, password: str) -> Password:
    """Return the JAAS text of a login with a password. Raises ConfigError for what it cannot express."""
    for name, value in (("user", user), ("password", password)):
        if not value or not value.isprintable():
            raise ConfigError(name, None, "must be text without control characters")
    quoted = [value.replace("\\", r"\\").replace('"', r"\"") for value in (user, password)]
    return Password(f'{LOGIN_MODULES[mechanism]} required username="{quoted[0]}" password="{quoted[1]}";')


class ControlFlag(Enum):
    """The control flag of a login module. With one module all of them mean the same."""

    REQUIRED = "required"
    REQUISITE = "requisite"
    SUFFICIENT = "sufficient"
    OPTIONAL = "optional"


@dataclass(frozen=True, slots=True)
class JaasConfig:
    """The one login module of a JAAS configuration, with its options."""

    login_module: str
    """The name of the class, with its package."""
    control_flag: ControlFlag
    options: Mapping[str, Password]
    setting: str = "sasl.jaas.config"
    """The name of the setting that it was read from, for errors."""

    @property
    def simple_name(self) -> str:
        """The class without its package. Vendors ship Kafka's classes in packages of their own."""
        return self.login_module.rpartition(".")[2]

    def is_of(self, mechanism: str) -> bool:
        """Return True if the login module is the one of ``mechanism``, in whatever package."""
        return self.simple_name == LOGIN_MODULES[mechanism].rpartition(".")[2]

    @property
    def users(self) -> dict[str, Password]:
        """User -> password: the options ``user_NAME="PASSWORD"`` of a broker with PLAIN."""
        prefix = "user_"
        return {
            name.removeprefix(prefix): value
            for name, value in self.options.items()
            if name.startswith(prefix)
        }

    def required(self, option: str) -> Password:
        """Return the value of ``option``. Raises ConfigError if it is missing or empty."""
        value = self.options.get(option)
        if value is None or not value.value:
            raise ConfigError(self.setting, None, f"requires the option {option!r} with a value")
        return value

    @classmethod
    def parse(cls, text: str | Password, setting: str = "sasl.jaas.config") -> JaasConfig:
        """Parse the text. Raises ConfigError for ``setting``, which says at which character."""
        text = text.value if isinstance(text, Password) else text
        try:
            return _parse(text, setting)
        except _SyntaxError as error:
            where = f"character {error.position + 1} of {len(text)}"
            raise ConfigError(setting, Password(text), f"{error.problem} ({where})") from None


class _SyntaxError(Exception):
    def __init__(self, position: int, problem: str) -> None:
        self.position = position
        self.problem = problem


@dataclass(frozen=True, slots=True)
class _Token:
    position: int
    text: str
    is_symbol: bool = False
    """True for ``;``, ``=`` and the end, which has no text."""

    def is_the(self, symbol: str) -> bool:
        return self.is_symbol and self.text == symbol


_TOKEN = re.compile(
    r"""(?P<skipped> [\0-\x20]+ | //[^\r\n]* | /\*.*?\*/ )
    | (?P<word> [^\0-\x20"'/;=\x81-\x9f]+ )
    | (?P<symbol> [;=] )
    | (?P<quote>["']) (?P<quoted> (?: (?!(?P=quote))[^\\\r\n] | \\. )* ) (?P=quote)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:(?P<octal>[0-3][0-7]{0,2}|[4-7][0-7]?)|(?P<letter>.))", re.DOTALL)
_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_PROBLEMS = {
    '"': "a value in double quotes has no closing quote on its line",
    "'": "a value in single quotes has no closing quote on its line",
    "/": "a '/' must be part of a comment (// or /* */); put values that contain it in double quotes",
}


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            problem = _PROBLEMS.get(text[position], "a control character outside quotes")
            raise _SyntaxError(
                position, "a comment has no end" if text.startswith("/*", position) else problem
            )
        if found["word"] is not None:
            yield _Token(position, found["word"])
        elif found["symbol"] is not None:
            yield _Token(position, found["symbol"], is_symbol=True)
        elif found["quoted"] is not None:
            yield _Token(position, _ESCAPE.sub(_unescaped, found["quoted"]))
        position = found.end()
    while True:
        yield _Token(max(0, len(text) - 1), "", is_symbol=True)


def _unescaped(found: re.Match[str]) -> str:
    return chr(int(found["octal"], 8)) if found["octal"] else _LETTERS.get(found["letter"], found["letter"])


def _parse(text: str, setting: str) -> JaasConfig:
    tokens = _tokens(text)
    module = _word(next(tokens), "expected a login module, a control flag, options and ';'")
    flag = _control_flag(next(tokens))
    options: dict[str, Password] = {}
    while not (token := next(tokens)).is_the(";"):
        name = _word(token, "expected an option or ';'" if token.text else "must end with ';'")
        equals = next(tokens)
        if not equals.is_the("="):
            problem = "expected '=' after the name of an option; put values with blanks in double quotes"
            raise _SyntaxError(equals.position, problem)
        options[name] = Password(_word(next(tokens), "expected the value of an option"))
    rest = next(tokens)
    if rest.text:
        problem = "expected the end after ';': exactly one login module; put values with ';' in double quotes"
        raise _SyntaxError(rest.position, problem)
    return JaasConfig(module, flag, options, setting)


def _word(token: _Token, expected: str) -> str:
    if token.is_symbol:
        raise _SyntaxError(token.position, expected)
    return token.text


def _control_flag(token: _Token) -> ControlFlag:
    expected = f"expected a control flag: {', '.join(flag.value for flag in ControlFlag)}"
    if token.text == "{":
        expected = "expected only what stands between the braces of a JAAS file"
    try:
        return ControlFlag(_word(token, expected).lower())
    except ValueError:
        raise _SyntaxError(token.position, expected) from None
