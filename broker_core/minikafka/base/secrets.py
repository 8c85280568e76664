"""Secrets in settings: which settings hold them, and redaction of values in all output.

Every place that prints a setting's value (errors, logs, command output, DescribeConfigs responses) takes it
from ``redact``.

A setting whose type is known to be secret has a ``Password``, whatever its name. Any other value is hidden by
the name of its setting:

* a name with ``jaas``, ``password``, ``secret``, ``token``, ``credential``, ``key`` … anywhere in it, in any
  case, or with a word that is nearly one of them (``pasword``, ``jass``), hides its value;
* but not if the name ends with a word for something that is never secret: a location, a type, a class, a
  format, a count or a time (``ssl.keystore.location``, ``ssl.keystore.type``, ``key.serializer``,
  ``null.key.partition``, ``--key-separator``, ``key.format``, ``delegation.token.max.lifetime.ms``).
  Kafka shows these too.

In any other value, the secrets that it contains are hidden: ``password=…`` and the like, the user of a URL or
an address, a JAAS configuration, a private key. Topics and groups may be called ``my.secret``: text about
them is kept if the caller passes their names.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

HIDDEN = "***"

_ANYWHERE = (
    "jaas",
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "credential",
    "key",
    "auth.user.info",
)
_WORDS = frozenset({"pass", "passw", "pwd", "pw", "jass", "jas"})
_NEARLY = ("password", "passphrase", "secret", "token", "credential", "jaas")
_NO_SECRET = (
    "location",
    "type",
    "class",
    "classes",
    "algorithm",
    "serializer",
    "deserializer",
    "encoder",
    "partition",
    "separator",
    "length",
    "iterations",
    "ms",
    "bytes",
    "format",
    "schema",
    "file",
    "message",
    "strategy",
)
"""Last words of names whose values are not secret."""

_OF_NAMES = frozenset({"--topic", "--group", "topic", "topics", "group", "group.id"})
"""Settings whose values are names of topics and groups."""

_SEPARATORS = re.compile(r"[^a-z0-9]+")
_LIKENESS = 0.8
"""``difflib``'s ratio of words that differ by a letter left out, doubled or moved; ``java`` is below it."""

# Every repetition is bounded or cannot backtrack: a value may have megabytes.
_PAIR = re.compile(
    r"""(?P<key>(?:password|passwd|passphrase|secret|token|credential|jaas|\b(?:pwd|pass)\b
    |(?:access|private|api|stored|server)[._-]?key|(?<=\w)[._-]key(?![\w.-]))
    [\w.-]{0,60} \\?["']? \s{0,9} [=:] \s{0,9})
    (?P<value> \\?"(?:[^"\\]|\\.)*"? | '(?:[^'\\]|\\.)*'? | [^\s"',;&{}()\[\]]+ )""",
    re.IGNORECASE | re.VERBOSE,
)
_NEVER_A_NAME = re.compile(r"pass|pwd|jaas|key", re.IGNORECASE)
# A word with which messages go on, after one colon and blank, and before one more word. Of a pass phrase that
# begins with it, that word is shown; the words behind the first were never hidden.
_SENTENCE = re.compile(
    r"(?<=[\w.-]: )(?:must|cannot|is|has|not|no|none|needs|requires|expected|conflicts|status) [A-Za-z0-9]"
)
# Behind an absolute path, or an address without a query, which are quoted or not, any sentence goes on.
_PATH_END = re.compile(r"(?:^|[\s'\"(=\[])(?:https?://[\w.:\[\]-]+)?/[^\s'\"=:?]*['\"]?: \Z")
_WORDS_OF_SENTENCE = re.compile(r"[A-Za-z]{1,30} [A-Za-z]")
_PATH_MAX = 1_000
_BEHIND_A_NAME = re.compile(r"(?:-\d{1,9})?(?![\w.-])")
_ARGUMENT = re.compile(r"(--(?:password|passwd|secret|token)\s{1,9}|\bBearer\s{1,9})[^\s\"']+", re.IGNORECASE)
_URL_USER = re.compile(r"://[^\s/]{1,500}@")
_ADDRESS_USER = re.compile(r"(?<![^\s,'\"(=])[^\s:@/,'\"(=]{1,100}:[^\s@/,'\"]{1,500}@(?=[\w\[])")
_JAAS = re.compile("LoginModule", re.IGNORECASE)
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)", re.DOTALL
)


class Password:
    """A secret value (Kafka's ``Password``). Its text is ``***``; ``value`` is the secret itself."""

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value = value

    @classmethod
    def of(cls, given: object) -> Password:
        """Return ``given`` as a secret; a text without the blanks around it, as Kafka reads it."""
        return given if isinstance(given, Password) else cls(str(given).strip())

    def __repr__(self) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)


def is_secret(name: str) -> bool:
    """Return True if the value of the setting ``name`` must never be shown."""
    words = [word for word in _SEPARATORS.split(name.lower()) if word]
    if words and words[-1] in _NO_SECRET:
        return False
    if any(part in name.lower() for part in _ANYWHERE) or not _WORDS.isdisjoint(words):
        return True
    return any(difflib.get_close_matches(word, _NEARLY, 1, _LIKENESS) for word in set(words))


def is_resource_name(name: str) -> bool:
    """Return True if the value of the setting ``name`` is the name of a topic or a group."""
    return name in _OF_NAMES


def redact(name: str, value: object) -> object:
    """Return ``value`` of the setting ``name`` without secrets; ``***`` if it is secret. None stays None."""
    if value is None or value == "":
        return value
    if isinstance(value, Password) or is_secret(name):
        return HIDDEN
    if is_resource_name(name):
        return value
    return redact_text(value) if isinstance(value, str) else value


def redact_all(settings: Mapping[str, object]) -> dict[str, object]:
    """Return ``settings`` with each value redacted (``redact``)."""
    return {name: redact(name, value) for name, value in settings.items()}


def redact_text(text: str, names: Iterable[str] = ()) -> str:
    """Return ``text`` with ``***`` in place of each secret that the surrounding text identifies as one.

    names: the names of topics, groups and the like, which are kept together with the text about them. Without
    them the word behind ``my.secret:`` is hidden: it is better to hide a word too many than to show a secret.
    Only words with which a message goes on are kept: ``ssl.key.password: cannot be changed``, and
    ``'/tls/ca.key': the file has no key``.
    """
    if _JAAS.search(text):
        return HIDDEN
    text = _PRIVATE_KEY.sub(HIDDEN, text)
    text = _URL_USER.sub(f"://{HIDDEN}@", text)
    text = _ADDRESS_USER.sub(f"{HIDDEN}@", text)
    text = _ARGUMENT.sub(rf"\1{HIDDEN}", text)
    known = tuple(names)

    def shown(pair: re.Match[str]) -> str:
        is_kept = _begins_sentence(text, pair.start("value")) or _is_name(pair, known)
        return pair[0] if is_kept else pair["key"] + HIDDEN

    return _PAIR.sub(shown, text)


def _begins_sentence(text: str, at: int) -> bool:
    """Return True if what stands at ``at``, behind a colon, is a message about a setting or a file."""
    if _SENTENCE.match(text, at):
        return True
    before = text[max(0, at - _PATH_MAX) : at]
    return bool(_WORDS_OF_SENTENCE.match(text, at) and _PATH_END.search(before))


def _is_name(pair: re.Match[str], names: Iterable[str]) -> bool:
    """Return True if a match that looks like ``secret: value`` is one of ``names`` (or its partition) and the
    text after it. The name must be complete: not a part of a longer name, and not an option.
    """
    if not pair["key"].rstrip().endswith(":") or _NEVER_A_NAME.search(pair["key"]):
        return False
    text, begin = pair.string, pair.start()
    for name in names:
        at = -1 if name[:1] in "-" else text.find(name, max(0, begin - len(name) + 1), begin + len(name))
        whole = at == 0 or not (text[at - 1].isalnum() or text[at - 1] in "_.-")
        if at >= 0 and whole and _BEHIND_A_NAME.match(text, at + len(name)):
            return True
    return False
