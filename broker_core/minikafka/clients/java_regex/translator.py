"""Regular expressions of Java, in which topics are chosen by pattern, for Python's ``re``. Pure.

The filters of consumers in ZooKeeper are such, which consumers in Java read as well, and
``subscribePattern`` of the Spark source.

A pattern means here what it means in ``java.util.regex`` of Java 9 and later, or it is refused with what
stands in it; what older releases of Java take for something else is refused to whoever asks for that. It is
only ever asked about names of topics, which are ASCII without line ends, and that decides much:

* A class of characters, with its unions and intersections, is worked out to the ASCII characters in it.
* A letter under ``(?i)`` is a class of two; so no flag is left whose reach would differ.
* ``(?m)``, ``(?s)`` and ``(?d)`` are about line ends, ``(?u)`` about other letters: they change nothing.
* A possessive or atomic part, which Python has from 3.11 on only, is a look-ahead and what that found.

Capturing groups are named for their numbers in Java: those that are added must not shift them.
"""

from __future__ import annotations

import functools
import re
import string
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from minikafka.clients.java_regex.character_classes import (
    ASCII,
    DIGITS,
    ESCAPED_SETS,
    LETTERS,
    WHITE,
    property_set,
)

_Modes = tuple[bool, bool, bool]
"""What ``(?i)``, ``(?u)`` and ``(?x)`` have turned on."""
_ESCAPED_CHARACTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_ESCAPED_PLACES = {"b": r"\b", "B": r"\B", "A": r"\A", "G": r"\A", "z": r"\Z", "Z": r"\Z"}
_NOTHING = "(?!)"
_FLAGS = frozenset("idmsux")
_TIMES_MOST = (1 << 31) - 1


class BadPattern(ValueError):
    """A pattern that Java refuses, or one that cannot be had in Python. Says what stands where in it."""


class _Mark(NamedTuple):
    """A character of the pattern. ``quoted``: it stood between ``\\Q`` and ``\\E``."""

    character: str
    quoted: bool
    at: int


@functools.lru_cache(maxsize=64)  # at every rebalance the filters of the whole group are read
def compiled(pattern: str, *, for_every_java: bool = False) -> re.Pattern[str]:
    """``pattern`` for Python, to be used with ``fullmatch`` on names of topics. BadPattern.

    With ``for_every_java`` what Java before 9 reads in another way, or not at all, is refused too.
    """
    try:
        return re.compile(_Translator(pattern, for_every_java).all(), re.ASCII)
    except re.error as problem:
        raise BadPattern(f"{problem.msg} in {pattern!r}, which is not possible here") from None
    except RecursionError:
        raise BadPattern(f"too many brackets in one another in {pattern[:100]!r}…") from None


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

    def __init__(self, pattern: str, for_every_java: bool) -> None:
        self._pattern = pattern
        self._for_every_java = for_every_java
        self._marks = list(_marks(pattern))
        self._next = 0
        self._groups = 0
        self._closed: set[int] = set()
        self._unsure: set[int] = set()
        """Groups in a repeated, atomic or looked-around part that is over: Java may still have for them
        what a try found that was given up.
        """
        self._names: dict[str, int] = {}
        self._added = 0
        self._conditions = 0
        """Parts so far that match nothing but a place."""
        self._look_behind = 0
        """How many there are around."""
        self._ignore_case = False
        self._unicode_case = False
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
            if mark.quoted or (mark.character not in WHITE and mark.character != "#"):
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
            self._refuse("the end, where something is missing,")
        self._next += 1
        return self._marks[self._next - 1].character

    def _take_plain(self) -> str:
        """The next character of an escape, a repetition or a name, which must not be quoted."""
        if self._next < len(self._marks) and self._marks[self._next].quoted:
            self._refuse("a quotation inside of something else")
        return self._take()

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
            found += self._take_plain()
        return found

    def _older_differ(self, what: str) -> None:
        """Refuse what older releases of Java take for something else, where that matters."""
        if self._for_every_java:
            self._refuse(f"{what}, of which releases of Java differ,")

    # Writing.

    def _one_of(self, characters: frozenset[str]) -> str:
        if not characters:
            return _NOTHING
        return "[" + "".join(f"\\x{ord(character):02x}" for character in sorted(characters)) + "]"

    def _with_cases(self, characters: frozenset[str]) -> frozenset[str]:
        if not self._ignore_case:
            return characters
        return characters | {c.swapcase() for c in characters if c in LETTERS}

    def _check_case(self, *characters: str) -> None:
        """Under ``(?iu)`` some letters beyond ASCII mean some of ASCII."""
        if self._ignore_case and self._unicode_case and not all(map(str.isascii, characters)):
            self._refuse("a character beyond ASCII under (?iu)")

    def _literal(self, character: str) -> str:
        self._check_case(character)
        if self._ignore_case and character in LETTERS:
            return self._one_of(self._with_cases(frozenset(character)))
        return re.escape(character)

    def _atomic(self, inside: str) -> str:
        self._added += 1
        return f"(?=(?P<a{self._added}>{inside}))(?P=a{self._added})"

    def _reference(self, group: int) -> str:
        if group > self._groups:
            self._refuse(f"a reference to group {group}, which does not stand before it,")
        if group not in self._closed:
            self._refuse(f"a reference to group {group} from inside of it")
        if group in self._unsure:
            self._refuse(f"a reference to group {group} in a repeated, atomic or looked-around part")
        if self._look_behind:
            self._refuse("a reference in a look-behind")
        return f"(?{'i' if self._ignore_case else ''}:(?P=g{group}))"

    # The grammar.

    def _alternatives(self) -> str:
        return "|".join(self._each_alternative())

    def _each_alternative(self) -> list[str]:
        found = [self._sequence()]
        while self._peek() == "|":
            self._take()
            found.append(self._sequence())
        return found

    def _sequence(self) -> str:
        found = ""
        while not self._at_end() and self._peek() not in ("|", ")"):
            groups, conditions = self._groups, self._conditions
            atom = self._atom()
            if atom is None:
                continue  # it was a flag, and what follows begins anew
            repeated = self._repeated(atom, self._conditions > conditions)
            if repeated != atom:
                self._unsure.update(range(groups + 1, self._groups + 1))
            found += repeated
        return found

    def _repeated(self, atom: str, conditional: bool) -> str:
        times = self._times(conditional)
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

    def _times(self, conditional: bool) -> str | None:
        mark = self._peek()
        if mark is not None and mark in "*+?":
            return self._take()
        if mark != "{":
            return None
        self._take()
        text = self._until("}", "a repetition")
        found = re.fullmatch(r"([0-9]{1,99})(,([0-9]{0,99}))?", text)
        least, most = (int(found[1]), int(found[3] or _TIMES_MOST)) if found else (1, 0)
        if not least <= most <= _TIMES_MOST:
            self._refuse(f"the repetition {{{text}}}")
        if conditional and least > 1:
            # Java repeats no more once a time has matched nothing, whatever the next one would.
            self._refuse(f"the repetition {{{text}}} of a part with '^', '$', a boundary or a look-around")
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
        if mark in "^$":
            self._conditions += 1
            return mark
        return mark if mark == "." else self._literal(mark)

    def _group(self) -> str | None:
        """What follows a bracket; None where that is only a flag."""
        before = (self._ignore_case, self._unicode_case, self._comments)
        if not self._accept("?"):
            return self._capturing(None, before)
        for start in ("<=", "<!"):
            if self._accept(start):
                return self._behind(start, before)
        for start in (":", "=", "!", ">"):
            if self._accept(start):
                groups = self._groups
                inside = "|".join(self._inside(before))
                if start != ":":
                    self._conditions += 1
                    self._unsure.update(range(groups + 1, self._groups + 1))
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
        self._unicode_case = ("u" in on or self._unicode_case) and "u" not in off
        self._comments = ("x" in on or self._comments) and "x" not in off
        # Until the group around it ends, or for the inside of this one.
        return f"(?:{'|'.join(self._inside(before))})" if self._take() == ":" else None

    def _behind(self, start: str, before: _Modes) -> str:
        """A look-behind: Python has it for one length only, so each alternative gets its own."""
        self._look_behind += 1
        groups = self._groups
        each = [f"(?{start}{one})" for one in self._inside(before)]
        self._look_behind -= 1
        self._conditions += 1
        self._unsure.update(range(groups + 1, self._groups + 1))
        return "".join(each) if start == "<!" else f"(?:{'|'.join(each)})"

    def _capturing(self, name: str | None, before: _Modes) -> str:
        self._groups += 1
        number = self._groups
        if name is not None:
            self._names[name] = number
        inside = "|".join(self._inside(before))
        self._closed.add(number)
        return f"(?P<g{number}>{inside})"

    def _inside(self, before: _Modes) -> list[str]:
        """The alternatives up to the bracket that closes the group."""
        found = self._each_alternative()
        if self._peek() != ")":
            self._refuse("the end, where a ')' is missing,")
        self._take()
        self._ignore_case, self._unicode_case, self._comments = before
        return found

    def _escape(self) -> str:
        """What follows a backslash outside of a class."""
        mark = self._take()
        if mark in _ESCAPED_PLACES:
            if mark == "b" and self._raw_peek() == "{":
                self._refuse("the boundary \\b{")
            self._conditions += 1
            return _ESCAPED_PLACES[mark]
        if mark == "R":
            return _NOTHING
        if mark == "X":
            self._older_differ("\\X")
            return "."
        if mark in "123456789":
            group = int(mark)
            while (digit := self._peek()) is not None and digit in DIGITS:
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
        return self._literal(self._escaped_character(mark)) if found is None else self._one_of(found)

    def _escaped_set(self, mark: str) -> frozenset[str] | None:
        """The characters of ``\\d``, ``\\P{Alpha}``, …; None for an escape that is no set."""
        if mark.lower() in ESCAPED_SETS:
            found = ESCAPED_SETS[mark.lower()]
        elif mark in "pP":
            name = self._until("}", "\\p{") if self._accept("{") else self._take_plain()
            known = property_set(name)
            if known is None:
                self._refuse(f"\\p{{{name}}}")
            found = known
            if self._with_cases(found) != found:
                self._older_differ(f"\\p{{{name}}} under (?i)")
                found = self._with_cases(found)
        else:
            return None
        return found if mark.islower() else ASCII - found

    def _escaped_character(self, mark: str) -> str:
        """The one character that an escape stands for."""
        if mark in _ESCAPED_CHARACTERS:
            return _ESCAPED_CHARACTERS[mark]
        if mark == "c":
            return chr(ord(self._take_plain()) ^ 64)
        if mark == "0":
            return chr(self._number(8, 3, 0o377))
        if mark == "x" and self._accept("{"):
            digits = self._until("}", "\\x{")
            if re.fullmatch(r"[0-9A-Fa-f]{1,6}", digits) is None or int(digits, 16) > 0x10FFFF:
                self._refuse(f"\\x{{{digits}}}")
            return chr(int(digits, 16))
        if mark in "xu":
            length = 2 if mark == "x" else 4
            digits = "".join(self._take_plain() for _ in range(length))
            if any(digit not in string.hexdigits for digit in digits):
                self._refuse(f"\\{mark}{digits}")
            return chr(int(digits, 16))
        if mark in LETTERS or mark in DIGITS:
            self._refuse(f"\\{mark}")
        return mark

    def _number(self, base: int, length: int, most: int) -> int:
        found: int | None = None
        digits = 0
        for _ in range(length):
            digit = self._raw_peek()
            if digit is None or digit not in string.octdigits or (found or 0) * base + int(digit) > most:
                break
            found = (found or 0) * base + int(self._take())
            digits += 1
        if found is None or (self._comments and digits < length):
            # Under (?x) Java looks for the others behind blanks.
            self._refuse("\\0 without its three digits" if self._comments else "\\0 without its digits")
        return found

    def _class(self) -> frozenset[str]:
        """What follows ``[``: items, other classes, and ``&&`` between them."""
        negated = self._accept("^")
        found: frozenset[str] | None = None
        """What stands left of the last ``&&``."""
        items: frozenset[str] = frozenset()
        seen = ""
        """What kinds of items there were since: ``[`` a class, ``.`` another."""
        while True:
            mark = self._peek()
            if self._at_end():
                self._refuse("the end, where a ']' is missing,")
            if mark == "]" and (seen or found is not None):
                self._take()
                break
            if mark == "&" and self._intersects():
                if not seen:
                    self._refuse("'&&' with nothing before it")
                found, items, seen = items if found is None else found & items, frozenset(), ""
                continue
            if mark == "[":
                if negated:
                    self._older_differ("a class in one that is negated")
                self._take()
                items |= self._class()
                seen += "["
            else:
                items |= self._item()
                seen += "."
            if found is not None and "[." in seen:
                self._older_differ("more than a class behind '&&'")
        if not seen:
            self._refuse("'&&' with nothing behind it")
        if found is not None and negated:
            self._older_differ("'&&' in a class that is negated")
        found = items if found is None else found & items
        return ASCII - found if negated else found

    def _intersects(self) -> bool:
        """Pass over ``&&``; Java sees it also with blanks between under ``(?x)``."""
        before = self._next
        self._take()
        if self._peek() != "&":
            self._next = before
            return False
        self._take()
        if self._peek() == "&":
            self._refuse("'&&&' in a class")
        return True

    def _item(self) -> frozenset[str]:
        """A character, a range or a set in a class."""
        first = self._member()
        if isinstance(first, frozenset):
            return first
        if self._peek() != "-" or self._raw_peek(1) in ("[", "]") or self._next + 1 >= len(self._marks):
            self._check_case(first)
            return self._with_cases(frozenset(first) & ASCII)
        self._take()
        self._skip()
        last = self._member()
        if isinstance(last, frozenset) or last < first:
            self._refuse(f"the range from {first!r}")
        self._check_case(first, last)
        return self._with_cases(frozenset(c for c in ASCII if first <= c <= last))

    def _member(self) -> str | frozenset[str]:
        if self._raw_peek() != "\\":
            return self._take()
        self._take()
        mark = self._take()
        found = self._escaped_set(mark)
        if found is not None:
            return found
        if mark in _ESCAPED_PLACES or mark in "RXk" or (mark in DIGITS and mark != "0"):
            self._refuse(f"\\{mark} in a class")
        return self._escaped_character(mark)
