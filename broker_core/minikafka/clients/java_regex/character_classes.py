"""The named character classes of Java's regular expressions, reduced to ASCII. Pure.

They are those of Java 17 and 25, without title case, and without scripts and blocks beyond ASCII.
"""

from __future__ import annotations

import string
import unicodedata

ASCII = frozenset(map(chr, range(128)))

_LOWER, _UPPER = frozenset(string.ascii_lowercase), frozenset(string.ascii_uppercase)
LETTERS, DIGITS = _LOWER | _UPPER, frozenset(string.digits)
_PUNCTUATION = frozenset(string.punctuation)
WHITE = frozenset(" \t\n\x0b\f\r")
_CONTROL = frozenset(map(chr, (*range(32), 127)))
_SEPARATORS = frozenset("\x1c\x1d\x1e\x1f")
ESCAPED_SETS = {
    "d": DIGITS,
    "w": LETTERS | DIGITS | {"_"},
    "s": WHITE,
    "h": frozenset(" \t"),
    "v": frozenset("\n\x0b\f\r"),
}
_IGNORABLE = _CONTROL - WHITE - _SEPARATORS


def _of_category(category: str) -> frozenset[str]:
    return frozenset(c for c in ASCII if unicodedata.category(c).startswith(category))


# The ASCII characters of \p{NAME}, in Java 17 and 25.
_NAMED_SETS = {
    "Lower": _LOWER,
    "Upper": _UPPER,
    "ASCII": ASCII,
    "Alpha": LETTERS,
    "Digit": DIGITS,
    "Alnum": LETTERS | DIGITS,
    "Punct": _PUNCTUATION,
    "Graph": LETTERS | DIGITS | _PUNCTUATION,
    "Print": LETTERS | DIGITS | _PUNCTUATION | {" "},
    "Blank": frozenset(" \t"),
    "Cntrl": _CONTROL,
    "XDigit": frozenset(string.hexdigits),
    "Space": WHITE,
    "LC": LETTERS,
    "LD": LETTERS | DIGITS,
    "L1": ASCII,
    "all": ASCII,
    "javaLowerCase": _LOWER,
    "javaUpperCase": _UPPER,
    "javaAlphabetic": LETTERS,
    "javaLetter": LETTERS,
    "javaDigit": DIGITS,
    "javaLetterOrDigit": LETTERS | DIGITS,
    "javaJavaIdentifierStart": LETTERS | frozenset("$_"),
    "javaJavaIdentifierPart": LETTERS | DIGITS | _IGNORABLE | frozenset("$_"),
    "javaUnicodeIdentifierStart": LETTERS,
    "javaUnicodeIdentifierPart": LETTERS | DIGITS | _IGNORABLE | {"_"},
    "javaIdentifierIgnorable": _IGNORABLE,
    "javaSpaceChar": frozenset(" "),
    "javaWhitespace": WHITE | _SEPARATORS,
    "javaISOControl": _CONTROL,
    "javaMirrored": frozenset("()<>[]{}"),
    "javaDefined": ASCII,
    "javaIdeographic": frozenset(),
}
# The ASCII characters of \p{IsNAME}; Java ignores the case of NAME.
_UNICODE_SETS = {
    **dict.fromkeys(("ALPHABETIC", "ALPHA", "LETTER"), LETTERS),
    **dict.fromkeys(("LOWERCASE", "LOWER"), _LOWER),
    **dict.fromkeys(("UPPERCASE", "UPPER"), _UPPER),
    **dict.fromkeys(("WHITE_SPACE", "WHITESPACE", "SPACE"), WHITE),
    **dict.fromkeys(("CONTROL", "CNTRL"), _CONTROL),
    **{name: _of_category("P") for name in ("PUNCTUATION", "PUNCT")},
    **{name: frozenset(string.hexdigits) for name in ("HEX_DIGIT", "HEXDIGIT", "XDIGIT")},
    "DIGIT": DIGITS,
    "ALNUM": LETTERS | DIGITS,
    "BLANK": frozenset(" \t"),
    "GRAPH": _NAMED_SETS["Graph"],
    "PRINT": _NAMED_SETS["Print"],
    "WORD": LETTERS | DIGITS | {"_"},
    "ASSIGNED": ASCII,
    "IDEOGRAPHIC": frozenset(),
}
_CATEGORIES = {
    *(
        "C",
        "Cc",
        "Cf",
        "Cn",
        "Co",
        "Cs",
        "L",
        "Ll",
        "Lm",
        "Lo",
        "Lu",
        "M",
        "Mc",
        "Me",
        "Mn",
        "N",
        "Nd",
        "Nl",
        "No",
    ),
    *("P", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S", "Sc", "Sk", "Sm", "So", "Z", "Zl", "Zp", "Zs"),
}
_SCRIPTS = {"LATIN": LETTERS, "LATN": LETTERS, "COMMON": ASCII - LETTERS, "ZYYY": ASCII - LETTERS}
_BLOCKS = dict.fromkeys(("BASICLATIN", "BASIC_LATIN", "BASIC LATIN"), ASCII)


def _named_set(name: str) -> frozenset[str] | None:
    return _of_category(name) if name in _CATEGORIES else _NAMED_SETS.get(name)


def property_set(name: str) -> frozenset[str] | None:
    """Return the ASCII characters of ``\\p{NAME}``; None for an unknown name."""
    kind, has_kind, value = name.partition("=")
    if has_kind:
        match kind.lower():
            case "sc" | "script":
                return _SCRIPTS.get(value.upper())
            case "blk" | "block":
                return _BLOCKS.get(value.upper())
            case "gc" | "general_category":
                return _named_set(value)
        return None
    if name.startswith("In"):
        return _BLOCKS.get(name[2:].upper())
    if name.startswith("Is"):
        value = name[2:]
        for found in (_UNICODE_SETS.get(value.upper()), _named_set(value), _SCRIPTS.get(value.upper())):
            if found is not None:
                return found
        return None
    return _named_set(name)
