"""Which settings hold secrets, and how a setting is shown to people.

Every place that prints a setting's value (errors, logs, command output, DescribeConfigs answers) takes it
from ``redact``. A value is hidden by the name of its setting:

* a name with ``jaas``, ``password``, ``secret``, ``token``, ``credential``, ``key`` … anywhere in it, in any
  case, or with a word that is nearly one of them (``pasword``, ``jass``), hides its value;
* but not where the name ends with what a secret never is: a place, a kind, a class, a count or a time
  (``ssl.keystore.location``, ``ssl.keystore.type``, ``key.serializer``, ``null.key.partition``,
  ``--key-separator``, ``delegation.token.max.lifetime.ms``). Kafka shows these too.

Any other value loses the secrets that stand inside it: ``password=…`` and the like, the user of a URL or
an address, a JAAS text, a private key. Topics and groups may be called ``my.secret``: what is said of them
stays where the caller names them.
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
)
"""Last words of names whose values are no secrets."""

_OF_NAMES = frozenset({"--topic", "--group", "topic", "topics", "group", "group.id"})
"""Settings whose values name topics and groups."""

_SEPARATORS = re.compile(r"[^a-z0-9]+")
_LIKENESS = 0.8
"""``difflib``'s ratio of words that differ by a letter left out, doubled or moved; ``java`` stays clear."""

# Every repetition is bounded, or ends what it consumes: a value may have megabytes.
_PAIR = re.compile(
    r"""(?P<key>(?:password|passwd|passphrase|secret|token|credential|jaas|\b(?:pwd|pass)\b
    |(?:access|private|api|stored|server)[._-]?key|(?<=\w)[._-]key(?![\w.-]))
    [\w.-]{0,60} \\?["']? \s{0,9} [=:] \s{0,9})
    (?P<value> \\?"(?:[^"\\]|\\.)*"? | '(?:[^'\\]|\\.)*'? | [^\s"',;&{}()\[\]]+ )""",
    re.IGNORECASE | re.VERBOSE,
)
_NEVER_A_NAME = re.compile(r"pass|pwd|jaas|key", re.IGNORECASE)
_BEHIND_A_NAME = re.compile(r"(?:-\d{1,9})?(?![\w.-])")
_ARGUMENT = re.compile(r"(--(?:password|passwd|secret|token)\s{1,9}|\bBearer\s{1,9})[^\s\"']+", re.IGNORECASE)
_URL_USER = re.compile(r"://[^\s/]{1,500}@")
_ADDRESS_USER = re.compile(r"(?<![^\s,'\"(=])[^\s:@/,'\"(=]{1,100}:[^\s@/,'\"]{1,500}@(?=[\w\[])")
_JAAS = re.compile("LoginModule", re.IGNORECASE)
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)", re.DOTALL
)


def is_secret(name: str) -> bool:
    """Whether the value of the setting ``name`` must never be shown."""
    words = [word for word in _SEPARATORS.split(name.lower()) if word]
    if words and words[-1] in _NO_SECRET:
        return False
    if any(part in name.lower() for part in _ANYWHERE) or not _WORDS.isdisjoint(words):
        return True
    return any(difflib.get_close_matches(word, _NEARLY, 1, _LIKENESS) for word in set(words))


def is_resource_name(name: str) -> bool:
    """Whether the value of the setting ``name`` is the name of a topic or a group."""
    return name in _OF_NAMES


def redact(name: str, value: object) -> object:
    """``value`` of the setting ``name`` as people may see it; ``***`` for a secret. None stays None."""
    if value is None or value == "":
        return value
    if is_secret(name):
        return HIDDEN
    if is_resource_name(name):
        return value
    return redact_text(value) if isinstance(value, str) else value


def redact_all(settings: Mapping[str, object]) -> dict[str, object]:
    """``settings`` with each value as ``redact`` gives it."""
    return {name: redact(name, value) for name, value in settings.items()}


def redact_text(text: str, names: Iterable[str] = ()) -> str:
    """``text`` with ``***`` in place of each secret that can be told as one by what surrounds it.

    names: of topics, groups and the like, which stay as they are, and what is said of them too. Without them
    the word behind ``my.secret:`` is hidden: better a word too many than a secret shown.
    """
    if _JAAS.search(text):
        return HIDDEN
    text = _PRIVATE_KEY.sub(HIDDEN, text)
    text = _URL_USER.sub(f"://{HIDDEN}@", text)
    text = _ADDRESS_USER.sub(f"{HIDDEN}@", text)
    text = _ARGUMENT.sub(rf"\1{HIDDEN}", text)
    known = tuple(names)
    return _PAIR.sub(lambda pair: pair[0] if _is_name(pair, known) else pair["key"] + HIDDEN, text)


def _is_name(pair: re.Match[str], names: Iterable[str]) -> bool:
    """Whether what looks like ``secret: value`` is one of ``names`` or a partition of it, and what is said of
    it. A name is there as a whole: no part of a longer one, and no option.
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
