"""Translates Java's regular expressions on topic names into Python's ``re``. Pure.

Java's syntax is used by the topic filters of consumers in ZooKeeper, which consumers in Java read too, and by
``subscribePattern`` of the Spark source.

A translated pattern means what it means in ``java.util.regex`` of Java 9 and later. Any other pattern is
refused, and the error names the construct. On request, constructs that older releases of Java read
differently are refused too. Patterns are matched only against topic names, which are ASCII without line ends.
That makes the translation simple:

* A character class, with its unions and intersections, becomes the set of its ASCII characters.
* A letter under ``(?i)`` becomes a class of two, so that no flag is left whose scope would differ.
* ``(?m)``, ``(?s)`` and ``(?d)`` concern line ends, and ``(?u)`` other letters: they change nothing.
* A possessive quantifier or atomic group, which Python has only since 3.11, becomes a look-ahead and a
  reference to what it matched.

Capturing groups are named after their numbers in Java, because groups that the translation adds must not
shift them.
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

_Flags = tuple[bool, bool, bool]
"""The states of ``(?i)``, ``(?u)`` and ``(?x)``."""
_ESCAPED_CHARACTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_ESCAPED_ASSERTIONS = {"b": r"\b", "B": r"\B", "A": r"\A", "G": r"\A", "z": r"\Z", "Z": r"\Z"}
_NEVER = "(?!)"
_FLAGS = frozenset("idmsux")
_MAX_REPETITIONS = (1 << 31) - 1


class BadPattern(ValueError):
    """Raised for a pattern that Java refuses, or that has no equivalent in Python. The text names the
    construct and its position.
    """


class _Character(NamedTuple):
    """A character of the pattern, and its position. ``quoted``: it is between ``\\Q`` and ``\\E``."""

    character: str
    quoted: bool
    at: int


@functools.lru_cache(maxsize=64)  # each rebalance reads the filters of the whole group
def compile_pattern(pattern: str, *, all_java_releases: bool = False) -> re.Pattern[str]:
    """Return ``pattern`` compiled for ``fullmatch`` on topic names. Raises BadPattern.

    ``all_java_releases``: also refuse constructs that Java before 9 refuses or reads differently.
    """
    try:
        return re.compile(_Translator(pattern, all_java_releases).translate(), re.ASCII)
    except re.error as error:
        raise BadPattern(f"not supported by Python's re: {error.msg}, in {pattern!r}") from None
    except RecursionError:
        raise BadPattern(f"brackets are nested too deeply in {pattern[:100]!r}…") from None


def _split(pattern: str) -> Iterator[_Character]:
    at = 0
    while at < len(pattern):
        if pattern.startswith("\\Q", at):
            end = pattern.find("\\E", at + 2)
            end = len(pattern) if end < 0 else end
            for place in range(at + 2, end):
                yield _Character(pattern[place], True, place)
            at = end + 2
        elif pattern[at] == "\\":
            for place in range(at, min(at + 2, len(pattern))):
                yield _Character(pattern[place], False, place)
            at += 2
        else:
            yield _Character(pattern[at], False, at)
            at += 1


class _Translator:
    """Translates one pattern in one pass, by recursive descent: alternatives, sequences, atoms, classes."""

    def __init__(self, pattern: str, all_java_releases: bool) -> None:
        self._pattern = pattern
        self._all_java_releases = all_java_releases
        self._characters = list(_split(pattern))
        self._index = 0
        """The index of the next character."""
        self._groups = 0
        """The number of capturing groups that have started."""
        self._closed_groups: set[int] = set()
        self._unreliable_groups: set[int] = set()
        """Groups in repeated, atomic or look-around parts that have ended: Java may keep what such a group
        matched in an attempt that was abandoned.
        """
        self._names: dict[str, int] = {}
        self._atomic_groups = 0
        """The number of groups that the translation has added."""
        self._assertions = 0
        """The number of zero-width assertions so far."""
        self._look_behind = 0
        """The number of look-behinds around the current position."""
        self._ignore_case = False
        self._unicode_case = False
        self._comments_mode = False

    def translate(self) -> str:
        """Return the whole pattern in Python's syntax."""
        found = self._alternatives()
        if self._index < len(self._characters):
            self._refuse("unmatched ')'")
        return found

    # --- reading

    def _refuse(self, problem: str) -> NoReturn:
        """Raise BadPattern with the current position."""
        index = min(self._index, len(self._characters))
        at = self._characters[index].at if index < len(self._characters) else len(self._pattern)
        raise BadPattern(f"{problem} at position {at} of {self._pattern!r}")

    def _skip_comments(self) -> None:
        """Skip blanks and comments under ``(?x)``."""
        while self._comments_mode and self._index < len(self._characters):
            current = self._characters[self._index]
            if current.quoted or (current.character not in WHITE and current.character != "#"):
                return
            comment = current.character == "#"
            self._index += 1
            while comment and self._index < len(self._characters) and self._raw_peek() not in ("\n", "\r"):
                self._index += 1

    def _peek(self) -> str | None:
        """Return the next character after blanks and comments; None if it is quoted, or at the end."""
        self._skip_comments()
        return self._raw_peek()

    def _raw_peek(self, ahead: int = 0) -> str | None:
        index = self._index + ahead
        if index >= len(self._characters) or self._characters[index].quoted:
            return None
        return self._characters[index].character

    def _at_end(self) -> bool:
        self._skip_comments()
        return self._index >= len(self._characters)

    def _take(self) -> str:
        """Return and consume the next character, quoted or not."""
        if self._index >= len(self._characters):
            self._refuse("unexpected end of the pattern")
        self._index += 1
        return self._characters[self._index - 1].character

    def _take_plain(self) -> str:
        """Return and consume the next character of an escape, quantifier or name: it must not be quoted."""
        if self._index < len(self._characters) and self._characters[self._index].quoted:
            self._refuse("quoted text inside an escape, quantifier or name")
        return self._take()

    def _accept(self, text: str) -> bool:
        """Consume ``text`` if it is next; return whether it is."""
        if all(self._raw_peek(n) == character for n, character in enumerate(text)):
            self._index += len(text)
            return True
        return False

    def _take_until(self, end: str, construct: str) -> str:
        """Return and consume the characters before ``end``, and consume ``end``."""
        found = ""
        while not self._accept(end):
            if self._index >= len(self._characters):
                self._refuse(f"missing {end!r} of {construct}")
            found += self._take_plain()
        return found

    def _refuse_if_releases_differ(self, construct: str) -> None:
        """Refuse a construct that older releases of Java read differently, if those count."""
        if self._all_java_releases:
            self._refuse(f"{construct}, which releases of Java read differently,")

    # --- writing

    def _character_class(self, characters: frozenset[str]) -> str:
        if not characters:
            return _NEVER
        return "[" + "".join(f"\\x{ord(character):02x}" for character in sorted(characters)) + "]"

    def _fold_case(self, characters: frozenset[str]) -> frozenset[str]:
        if not self._ignore_case:
            return characters
        return characters | {c.swapcase() for c in characters if c in LETTERS}

    def _check_case(self, *characters: str) -> None:
        """Refuse letters beyond ASCII under ``(?iu)``, where some of them also match ASCII letters."""
        if self._ignore_case and self._unicode_case and not all(map(str.isascii, characters)):
            self._refuse("unsupported character beyond ASCII under (?iu)")

    def _literal(self, character: str) -> str:
        self._check_case(character)
        if self._ignore_case and character in LETTERS:
            return self._character_class(self._fold_case(frozenset(character)))
        return re.escape(character)

    def _atomic_group(self, inside: str) -> str:
        self._atomic_groups += 1
        return f"(?=(?P<a{self._atomic_groups}>{inside}))(?P=a{self._atomic_groups})"

    def _reference(self, group: int) -> str:
        if group > self._groups:
            self._refuse(f"reference to group {group}, which does not precede it,")
        if group not in self._closed_groups:
            self._refuse(f"reference to group {group} inside the group")
        if group in self._unreliable_groups:
            self._refuse(f"unsupported reference to group {group} in a repeated, atomic or look-around part")
        if self._look_behind:
            self._refuse("unsupported reference in a look-behind")
        return f"(?{'i' if self._ignore_case else ''}:(?P=g{group}))"

    # --- the grammar

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
            groups, assertions = self._groups, self._assertions
            atom = self._atom()
            if atom is None:
                continue  # a flag, which cannot be repeated
            repeated = self._quantified(atom, self._assertions > assertions)
            if repeated != atom:
                self._unreliable_groups.update(range(groups + 1, self._groups + 1))
            found += repeated
        return found

    def _quantified(self, atom: str, has_assertion: bool) -> str:
        """Return an atom with the quantifier that follows it, if there is one."""
        quantifier = self._quantifier(has_assertion)
        if quantifier is None:
            return atom
        inside = f"(?:{atom}){quantifier}"
        if self._peek() == "?":
            self._take()
            inside += "?"
        elif self._peek() == "+":
            self._take()
            # Java backtracks into none of the repetitions.
            inside = self._atomic_group(f"(?:{self._atomic_group(atom)}){quantifier}")
        if self._peek() in ("*", "+", "?", "{"):
            self._refuse(f"second quantifier {self._peek()!r}")
        return inside

    def _quantifier(self, has_assertion: bool) -> str | None:
        character = self._peek()
        if character is not None and character in "*+?":
            return self._take()
        if character != "{":
            return None
        self._take()
        text = self._take_until("}", "a quantifier")
        found = re.fullmatch(r"([0-9]{1,99})(,([0-9]{0,99}))?", text)
        least, most = (int(found[1]), int(found[3] or _MAX_REPETITIONS)) if found else (1, 0)
        if not least <= most <= _MAX_REPETITIONS:
            self._refuse(f"invalid quantifier {{{text}}}")
        if has_assertion and least > 1:
            # Java stops at a repetition that matches nothing, even if the next one would match.
            self._refuse(
                f"unsupported quantifier {{{text}}} of a part with '^', '$', a boundary or a look-around"
            )
        return f"{{{text}}}"

    def _atom(self) -> str | None:
        self._skip_comments()
        character = self._raw_peek()
        if character is None:
            return self._literal(self._take())
        if character == "[":
            self._take()
            return self._character_class(self._class())
        if character == "(":
            self._take()
            return self._group()
        if character == "\\":
            self._take()
            return self._escape()
        if character in "*+?{":
            self._refuse(f"quantifier {character!r} with nothing to repeat")
        self._take()
        if character in "^$":
            self._assertions += 1
            return character
        return character if character == "." else self._literal(character)

    def _group(self) -> str | None:
        """Translate the rest of a group after its ``(``; None if it only sets flags."""
        before = (self._ignore_case, self._unicode_case, self._comments_mode)
        if not self._accept("?"):
            return self._capturing(None, before)
        for start in ("<=", "<!"):
            if self._accept(start):
                return self._look_behind_group(start, before)
        for start in (":", "=", "!", ">"):
            if self._accept(start):
                groups = self._groups
                inside = "|".join(self._group_body(before))
                if start != ":":
                    self._assertions += 1
                    self._unreliable_groups.update(range(groups + 1, self._groups + 1))
                return self._atomic_group(inside) if start == ">" else f"(?{start}{inside})"
        if self._accept("<"):
            name = self._take_until(">", "a group name")
            if re.fullmatch(r"[A-Za-z][A-Za-z0-9]*", name) is None or name in self._names:
                self._refuse(f"invalid or repeated group name {name!r}")
            return self._capturing(name, before)
        flags = ""
        while self._raw_peek() not in (":", ")", None):
            flags += self._take()
        on, _, off = flags.partition("-")
        unknown = (set(on) | set(off)) - _FLAGS
        if unknown or not flags.strip("-") or self._raw_peek() is None:
            self._refuse(f"unsupported group (?{flags}")
        self._ignore_case = ("i" in on or self._ignore_case) and "i" not in off
        self._unicode_case = ("u" in on or self._unicode_case) and "u" not in off
        self._comments_mode = ("x" in on or self._comments_mode) and "x" not in off
        # Flags hold until the surrounding group ends, or inside this group.
        return f"(?:{'|'.join(self._group_body(before))})" if self._take() == ":" else None

    def _look_behind_group(self, start: str, before: _Flags) -> str:
        """Translate a look-behind: Python's have one length, so each alternative becomes its own."""
        self._look_behind += 1
        groups = self._groups
        look_behinds = [f"(?{start}{alternative})" for alternative in self._group_body(before)]
        self._look_behind -= 1
        self._assertions += 1
        self._unreliable_groups.update(range(groups + 1, self._groups + 1))
        return "".join(look_behinds) if start == "<!" else f"(?:{'|'.join(look_behinds)})"

    def _capturing(self, name: str | None, before: _Flags) -> str:
        self._groups += 1
        number = self._groups
        if name is not None:
            self._names[name] = number
        inside = "|".join(self._group_body(before))
        self._closed_groups.add(number)
        return f"(?P<g{number}>{inside})"

    def _group_body(self, before: _Flags) -> list[str]:
        """Return the alternatives of a group, consume its ``)`` and restore the flags."""
        found = self._each_alternative()
        if self._peek() != ")":
            self._refuse("missing ')'")
        self._take()
        self._ignore_case, self._unicode_case, self._comments_mode = before
        return found

    def _escape(self) -> str:
        """Translate an escape outside of a class, after its backslash."""
        character = self._take()
        if character in _ESCAPED_ASSERTIONS:
            if character == "b" and self._raw_peek() == "{":
                self._refuse("unsupported boundary \\b{")
            self._assertions += 1
            return _ESCAPED_ASSERTIONS[character]
        if character == "R":
            return _NEVER
        if character == "X":
            self._refuse_if_releases_differ("\\X")
            return "."
        if character in "123456789":
            group = int(character)
            while (digit := self._peek()) is not None and digit in DIGITS:
                if group * 10 + int(digit) > self._groups:
                    break
                group = group * 10 + int(self._take())
            return self._reference(group)
        if character == "k":
            name = self._take_until(">", "\\k") if self._accept("<") else ""
            if name not in self._names:
                self._refuse(f"reference \\k<{name}> to an unknown group")
            return self._reference(self._names[name])
        found = self._escaped_set(character)
        if found is not None:
            return self._character_class(found)
        return self._literal(self._escaped_character(character))

    def _escaped_set(self, character: str) -> frozenset[str] | None:
        """Return the characters of ``\\d``, ``\\P{Alpha}``, …; None for an escape that is not a set."""
        if character.lower() in ESCAPED_SETS:
            found = ESCAPED_SETS[character.lower()]
        elif character in "pP":
            name = self._take_until("}", "\\p{") if self._accept("{") else self._take_plain()
            known = property_set(name)
            if known is None:
                self._refuse(f"unsupported property \\p{{{name}}}")
            found = known
            if self._fold_case(found) != found:
                self._refuse_if_releases_differ(f"\\p{{{name}}} under (?i)")
                found = self._fold_case(found)
        else:
            return None
        return found if character.islower() else ASCII - found

    def _escaped_character(self, character: str) -> str:
        """Return the single character of an escape."""
        if character in _ESCAPED_CHARACTERS:
            return _ESCAPED_CHARACTERS[character]
        if character == "c":
            return chr(ord(self._take_plain()) ^ 64)
        if character == "0":
            return chr(self._number(8, 3, 0o377))
        if character == "x" and self._accept("{"):
            digits = self._take_until("}", "\\x{")
            if re.fullmatch(r"[0-9A-Fa-f]{1,6}", digits) is None or int(digits, 16) > 0x10FFFF:
                self._refuse(f"invalid escape \\x{{{digits}}}")
            return chr(int(digits, 16))
        if character in "xu":
            length = 2 if character == "x" else 4
            digits = "".join(self._take_plain() for _ in range(length))
            if any(digit not in string.hexdigits for digit in digits):
                self._refuse(f"invalid escape \\{character}{digits}")
            return chr(int(digits, 16))
        if character in LETTERS or character in DIGITS:
            self._refuse(f"unsupported escape \\{character}")
        return character

    def _number(self, base: int, length: int, most: int) -> int:
        found: int | None = None
        digits = 0
        for _ in range(length):
            digit = self._raw_peek()
            if digit is None or digit not in string.octdigits or (found or 0) * base + int(digit) > most:
                break
            found = (found or 0) * base + int(self._take())
            digits += 1
        if found is None or (self._comments_mode and digits < length):
            # Under (?x) Java looks for the other digits after blanks.
            self._refuse(
                "unsupported \\0 without three digits under (?x)"
                if self._comments_mode
                else "\\0 without octal digits"
            )
        return found

    def _class(self) -> frozenset[str]:
        """Return the characters of a class, after its ``[``: items, nested classes, and ``&&`` between
        them.
        """
        negated = self._accept("^")
        found: frozenset[str] | None = None
        """The characters of the operands before the last ``&&``."""
        items: frozenset[str] = frozenset()
        seen = ""
        """The kinds of items after the last ``&&``: ``[`` for a class, ``.`` for any other."""
        while True:
            character = self._peek()
            if self._at_end():
                self._refuse("missing ']'")
            if character == "]" and (seen or found is not None):
                self._take()
                break
            if character == "&" and self._intersects():
                if not seen:
                    self._refuse("nothing before '&&'")
                found, items, seen = items if found is None else found & items, frozenset(), ""
                continue
            if character == "[":
                if negated:
                    self._refuse_if_releases_differ("a class nested in a negated class")
                self._take()
                items |= self._class()
                seen += "["
            else:
                items |= self._item()
                seen += "."
            if found is not None and "[." in seen:
                self._refuse_if_releases_differ("more than a class after '&&'")
        if not seen:
            self._refuse("nothing after '&&'")
        if found is not None and negated:
            self._refuse_if_releases_differ("'&&' in a negated class")
        found = items if found is None else found & items
        return ASCII - found if negated else found

    def _intersects(self) -> bool:
        """Consume ``&&``, which under ``(?x)`` may have blanks inside; return whether it is next."""
        before = self._index
        self._take()
        if self._peek() != "&":
            self._index = before
            return False
        self._take()
        if self._peek() == "&":
            self._refuse("unsupported '&&&' in a class")
        return True

    def _item(self) -> frozenset[str]:
        """Return the characters of one item of a class: a character, a range or an escaped set."""
        first = self._member()
        if isinstance(first, frozenset):
            return first
        if self._peek() != "-" or self._raw_peek(1) in ("[", "]") or self._index + 1 >= len(self._characters):
            self._check_case(first)
            return self._fold_case(frozenset(first) & ASCII)
        self._take()
        self._skip_comments()
        last = self._member()
        if isinstance(last, frozenset) or last < first:
            self._refuse(f"invalid range from {first!r}")
        self._check_case(first, last)
        return self._fold_case(frozenset(c for c in ASCII if first <= c <= last))

    def _member(self) -> str | frozenset[str]:
        """Return a character, or the set of an escape."""
        if self._raw_peek() != "\\":
            return self._take()
        self._take()
        character = self._take()
        found = self._escaped_set(character)
        if found is not None:
            return found
        is_reference = character in DIGITS and character != "0"
        if character in _ESCAPED_ASSERTIONS or character in "RXk" or is_reference:
            self._refuse(f"unsupported escape \\{character} in a class")
        return self._escaped_character(character)
