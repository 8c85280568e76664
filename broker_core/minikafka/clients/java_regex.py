"""Regular expressions of Java, in which topics are chosen by pattern, for Python's ``re``. Pure.

The filters of consumers in ZooKeeper are such, which consumers in Java read as well, and
``subscribePattern`` of the Spark source.

A pattern means here what it means in ``java.util.regex`` of Java 9 and later, or it is refused with what
stands in it. It is only ever asked about names of topics, which are ASCII without line ends, and that decides
much:

* A class of characters, with its unions and intersections, is worked out to the ASCII characters in it.
* A letter under ``(?i)`` is a class of two; so no flag is left whose reach would differ.
* ``(?m)``, ``(?s)`` and ``(?d)`` are about line ends, ``(?u)`` about other letters: they change nothing.
* A possessive or atomic part, which Python has from 3.11 on only, is a look-ahead and what that found.

Capturing groups are named for their numbers in Java: those that are added must not shift them.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

ASCII = frozenset(map(chr, range(128)))

_LETTERS, _DIGITS = frozenset(string.ascii_letters), frozenset(string.digits)
_PUNCTUATION = frozenset(string.punctuation)
_WHITE = frozenset(" \t\n\x0b\f\r")
_CONTROL = frozenset(map(chr, (*range(32), 127)))
_ESCAPED_SETS = {
    "d": _DIGITS,
    "w": _LETTERS | _DIGITS | {"_"},
    "s": _WHITE,
    "h": frozenset(" \t"),
    "v": frozenset("\n\x0b\f\r"),
}
_ESCAPED_CHARACTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_ESCAPED_PLACES = {"b": r"\b", "B": r"\B", "A": r"\A", "G": r"\A", "z": r"\Z", "Z": r"\Z"}
_NAMED_SETS = {
    "Lower": frozenset(string.ascii_lowercase),
    "Upper": frozenset(string.ascii_uppercase),
    "ASCII": ASCII,
    "Alpha": _LETTERS,
    "Digit": _DIGITS,
    "Alnum": _LETTERS | _DIGITS,
    "Punct": _PUNCTUATION,
    "Graph": _LETTERS | _DIGITS | _PUNCTUATION,
    "Print": _LETTERS | _DIGITS | _PUNCTUATION | {" "},
    "Blank": frozenset(" \t"),
    "Cntrl": _CONTROL,
    "XDigit": frozenset(string.hexdigits),
    "Space": _WHITE,
    "IsAlphabetic": _LETTERS,
    "IsLetter": _LETTERS,
    "IsDigit": _DIGITS,
    "IsUppercase": frozenset(string.ascii_uppercase),
    "IsLowercase": frozenset(string.ascii_lowercase),
}
_CATEGORIES = {"L", "Lu", "Ll", "LC", "N", "Nd", "P", "Pd", "Pc", "Ps", "Pe", "Po", "S", "Sm", "Sc", "Sk"}
_NOTHING = "(?!)"
_FLAGS = frozenset("idmsux")


class BadPattern(ValueError):
    """A pattern that Java refuses, or one that cannot be had in Python. Says what stands where in it."""


class _Mark(NamedTuple):
    """A character of the pattern. ``quoted``: it stood between ``\\Q`` and ``\\E``."""

    character: str
    quoted: bool
    at: int


def compiled(pattern: str) -> re.Pattern[str]:
    """``pattern`` for Python, to be used with ``fullmatch`` on names of topics. BadPattern."""
    translated = _Translator(pattern).all()
    try:
        return re.compile(translated, re.ASCII)
    except re.error as problem:
        raise BadPattern(f"{problem.msg} in {pattern!r}, which is not possible here") from None


def _marks(pattern: str) -> Iterator[_Mark]:
    at = 0
    while at < len(pattern):
        if pattern.startswith("\\Q", at):
            end = pattern.find("\\E", at + 2)
            end = len(pattern) if end < 0 else end
            for place in range(at + 2, end):
                yield _Mark(pattern[place], True, place)
            at = end + 2
        elif pattern[at] == "\\":
            for place in range(at, min(at + 2, len(pattern))):
                yield _Mark(pattern[place], False, place)
            at += 2
        else:
            yield _Mark(pattern[at], False, at)
            at += 1


class _Translator:
    """One pass over a pattern, by recursive descent: alternatives, sequences, atoms, classes."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._marks = list(_marks(pattern))
        self._next = 0
        self._groups = 0
        self._closed: set[int] = set()
        self._names: dict[str, int] = {}
        self._added = 0
        self._ignore_case = False
        self._comments = False

    def all(self) -> str:
        found = self._alternatives()
        if self._next < len(self._marks):
            self._refuse("the unmatched ')'")
        return found

    # Reading.

    def _refuse(self, what: str) -> NoReturn:
        index = min(self._next, len(self._marks))
        at = self._marks[index].at if index < len(self._marks) else len(self._pattern)
        raise BadPattern(f"{what} at position {at} of {self._pattern!r}")

    def _skip(self) -> None:
        """Under ``(?x)``, pass over blanks and comments."""
        while self._comments and self._next < len(self._marks):
            mark = self._marks[self._next]
            if mark.quoted or (mark.character not in _WHITE and mark.character != "#"):
                return
            comment = mark.character == "#"
            self._next += 1
            while comment and self._next < len(self._marks) and self._raw_peek() not in ("\n", "\r"):
                self._next += 1

    def _peek(self) -> str | None:
        """The next character that may mean something; None for one that is quoted, or at the end."""
        self._skip()
        return self._raw_peek()

    def _raw_peek(self, ahead: int = 0) -> str | None:
        index = self._next + ahead
        if index >= len(self._marks) or self._marks[index].quoted:
            return None
        return self._marks[index].character

    def _at_end(self) -> bool:
        self._skip()
        return self._next >= len(self._marks)

    def _take(self) -> str:
        """The next character whatever it is."""
        if self._next >= len(self._marks):
            self._refuse("the pattern ends too early")
        self._next += 1
        return self._marks[self._next - 1].character

    def _accept(self, text: str) -> bool:
        if all(self._raw_peek(n) == character for n, character in enumerate(text)):
            self._next += len(text)
            return True
        return False

    def _until(self, end: str, what: str) -> str:
        found = ""
        while not self._accept(end):
            if self._next >= len(self._marks):
                self._refuse(f"{what} without its {end!r}")
            found += self._take()
        return found

    # Writing.

    def _one_of(self, characters: frozenset[str]) -> str:
        if not characters:
            return _NOTHING
        return "[" + "".join(f"\\x{ord(character):02x}" for character in sorted(characters)) + "]"

    def _with_cases(self, characters: frozenset[str]) -> frozenset[str]:
        if not self._ignore_case:
            return characters
        return characters | {c.swapcase() for c in characters if c in _LETTERS}

    def _literal(self, character: str) -> str:
        if self._ignore_case and character in _LETTERS:
            return self._one_of(self._with_cases(frozenset(character)))
        return re.escape(character)

    def _atomic(self, inside: str) -> str:
        self._added += 1
        return f"(?=(?P<a{self._added}>{inside}))(?P=a{self._added})"

    def _reference(self, group: int) -> str:
        if group > self._groups:
            return _NOTHING
        if group not in self._closed:
            self._refuse(f"a reference to group {group} from inside of it")
        return f"(?{'i' if self._ignore_case else ''}:(?P=g{group}))"

    # The grammar.

    def _alternatives(self) -> str:
        found = [self._sequence()]
        while self._peek() == "|":
            self._take()
            found.append(self._sequence())
        return "|".join(found)

    def _sequence(self) -> str:
        found = ""
        while not self._at_end() and self._peek() not in ("|", ")"):
            atom = self._atom()
            # Without one, it was a flag, and what follows begins anew.
            found += "" if atom is None else self._repeated(atom)
        return found

    def _repeated(self, atom: str) -> str:
        times = self._times()
        if times is None:
            return atom
        inside = f"(?:{atom}){times}"
        if self._peek() == "?":
            self._take()
            inside += "?"
        elif self._peek() == "+":
            self._take()
            # Java gives nothing back of any of the times.
            inside = self._atomic(f"(?:{self._atomic(atom)}){times}")
        if self._peek() in ("*", "+", "?", "{"):
            self._refuse(f"the repetition {self._peek()!r} of a repetition")
        return inside

    def _times(self) -> str | None:
        mark = self._peek()
        if mark is not None and mark in "*+?":
            return self._take()
        if mark != "{":
            return None
        self._take()
        text = self._until("}", "a repetition")
        found = re.fullmatch(r"([0-9]+)(,([0-9]*))?", text)
        if found is None or (found[3] and int(found[3]) < int(found[1])):
            self._refuse(f"the repetition {{{text}}}")
        return f"{{{text}}}"

    def _atom(self) -> str | None:
        self._skip()
        mark = self._raw_peek()
        if mark is None:
            return self._literal(self._take())
        if mark == "[":
            self._take()
            return self._one_of(self._class())
        if mark == "(":
            self._take()
            return self._group()
        if mark == "\\":
            self._take()
            return self._escape()
        if mark in "*+?{":
            self._refuse(f"{mark!r} with nothing to repeat")
        self._take()
        return mark if mark in ".^$" else self._literal(mark)

    def _group(self) -> str | None:
        """What follows a bracket; None where that is only a flag."""
        before = (self._ignore_case, self._comments)
        if not self._accept("?"):
            return self._capturing(None, before)
        for start in ("<=", "<!", ":", "=", "!", ">"):
            if self._accept(start):
                inside = self._inside(before)
                return self._atomic(inside) if start == ">" else f"(?{start}{inside})"
        if self._accept("<"):
            name = self._until(">", "the name of a group")
            if re.fullmatch(r"[A-Za-z][A-Za-z0-9]*", name) is None or name in self._names:
                self._refuse(f"the group name {name!r}")
            return self._capturing(name, before)
        flags = ""
        while self._raw_peek() not in (":", ")", None):
            flags += self._take()
        on, _, off = flags.partition("-")
        unknown = (set(on) | set(off)) - _FLAGS
        if unknown or not flags.strip("-") or self._raw_peek() is None:
            self._refuse(f"the group (?{flags}")
        self._ignore_case = ("i" in on or self._ignore_case) and "i" not in off
        self._comments = ("x" in on or self._comments) and "x" not in off
        # Until the group around it ends, or for the inside of this one.
        return f"(?:{self._inside(before)})" if self._take() == ":" else None

    def _capturing(self, name: str | None, before: tuple[bool, bool]) -> str:
        self._groups += 1
        number = self._groups
        if name is not None:
            self._names[name] = number
        inside = self._inside(before)
        self._closed.add(number)
        return f"(?P<g{number}>{inside})"

    def _inside(self, before: tuple[bool, bool]) -> str:
        found = self._alternatives()
        if self._peek() != ")":
            self._refuse("the end, where a ')' is missing,")
        self._take()
        self._ignore_case, self._comments = before
        return found

    def _escape(self) -> str:
        """What follows a backslash outside of a class."""
        mark = self._take()
        if mark in _ESCAPED_PLACES:
            if mark == "b" and self._raw_peek() == "{":
                self._refuse("the boundary \\b{")
            return _ESCAPED_PLACES[mark]
        if mark == "R":
            return _NOTHING
        if mark == "X":
            return "."
        if mark in "123456789":
            group = int(mark)
            while (digit := self._raw_peek()) is not None and digit in _DIGITS:
                if group * 10 + int(digit) > self._groups:
                    break
                group = group * 10 + int(self._take())
            return self._reference(group)
        if mark == "k":
            name = self._until(">", "\\k") if self._accept("<") else ""
            if name not in self._names:
                self._refuse(f"the reference \\k<{name}> to no group")
            return self._reference(self._names[name])
        found = self._escaped_set(mark)
        if found is not None:
            return self._one_of(self._with_cases(found) if mark in "pP" else found)
        return self._literal(self._escaped_character(mark))

    def _escaped_set(self, mark: str) -> frozenset[str] | None:
        """The characters of ``\\d``, ``\\P{Alpha}``, …; None for an escape that is no set."""
        if mark.lower() in _ESCAPED_SETS:
            found = _ESCAPED_SETS[mark.lower()]
        elif mark in "pP":
            found = self._property(self._until("}", "\\p{") if self._accept("{") else self._take())
        else:
            return None
        return found if mark.islower() else ASCII - found

    def _property(self, name: str) -> frozenset[str]:
        if name in _NAMED_SETS:
            return _NAMED_SETS[name]
        category = re.sub(r"^(Is|gc=|general_category=)", "", name)
        if category not in _CATEGORIES:
            self._refuse(f"\\p{{{name}}}")
        if category == "LC":
            return _LETTERS
        return frozenset(c for c in ASCII if unicodedata.category(c).startswith(category))

    def _escaped_character(self, mark: str) -> str:
        """The one character that an escape stands for."""
        if mark in _ESCAPED_CHARACTERS:
            return _ESCAPED_CHARACTERS[mark]
        if mark == "c":
            return chr(ord(self._take()) ^ 64)
        if mark == "0":
            return chr(self._number(8, 3, 0o377))
        if mark == "x" and self._accept("{"):
            digits = self._until("}", "\\x{")
            if re.fullmatch(r"[0-9A-Fa-f]{1,6}", digits) is None or int(digits, 16) > 0x10FFFF:
                self._refuse(f"\\x{{{digits}}}")
            return chr(int(digits, 16))
        if mark in "xu":
            length = 2 if mark == "x" else 4
            digits = "".join(self._take() for _ in range(length))
            if any(digit not in string.hexdigits for digit in digits):
                self._refuse(f"\\{mark}{digits}")
            return chr(int(digits, 16))
        if mark in _LETTERS or mark in _DIGITS:
            self._refuse(f"\\{mark}")
        return mark

    def _number(self, base: int, length: int, most: int) -> int:
        found: int | None = None
        for _ in range(length):
            digit = self._raw_peek()
            if digit is None or digit not in string.octdigits or (found or 0) * base + int(digit) > most:
                break
            found = (found or 0) * base + int(self._take())
        if found is None:
            self._refuse("\\0 without its digits")
        return found

    def _class(self) -> frozenset[str]:
        """What follows ``[``: items, other classes, and ``&&`` between them."""
        negated = self._accept("^")
        found: frozenset[str] | None = None
        """What stands left of the last ``&&``."""
        items: frozenset[str] = frozenset()
        empty = True
        while True:
            mark = self._peek()
            if self._at_end():
                self._refuse("the end, where a ']' is missing,")
            if mark == "]" and not (empty and found is None):
                self._take()
                break
            if self._accept("&&"):
                if empty:
                    self._refuse("'&&' with nothing before it")
                found, items, empty = items if found is None else found & items, frozenset(), True
                continue
            empty = False
            if mark == "[":
                self._take()
                items |= self._class()
            else:
                items |= self._item()
        if empty:
            self._refuse("'&&' with nothing behind it")
        found = items if found is None else found & items
        return ASCII - found if negated else found

    def _item(self) -> frozenset[str]:
        """A character, a range or a set in a class."""
        first = self._member()
        if isinstance(first, frozenset):
            return first
        if self._peek() != "-" or self._raw_peek(1) in ("[", "]") or self._next + 1 >= len(self._marks):
            return self._with_cases(frozenset(first) & ASCII)
        self._take()
        self._skip()
        last = self._member()
        if isinstance(last, frozenset) or last < first:
            self._refuse(f"the range from {first!r}")
        return self._with_cases(frozenset(c for c in ASCII if first <= c <= last))

    def _member(self) -> str | frozenset[str]:
        if self._raw_peek() != "\\":
            return self._take()
        self._take()
        mark = self._take()
        found = self._escaped_set(mark)
        if found is not None:
            return self._with_cases(found) if mark in "pP" else found
        if mark in _ESCAPED_PLACES or mark in "RXk" or (mark in _DIGITS and mark != "0"):
            self._refuse(f"\\{mark} in a class")
        return self._escaped_character(mark)
