"""Java's regular expressions on names of topics. Java's own answers are in the data; it is asked again, at
random, in tests/spark/test_patterns.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minikafka.clients.java_regex.translator import BadPattern, compiled

RECORDED = json.loads((Path(__file__).parents[3] / "data" / "java-regex.json").read_text(encoding="utf-8"))
"""Of Java 17, and 25 gives the same: ``names``, the ones among them that each of ``patterns`` matches (null
where Java refuses it), and the characters of ASCII, but the line feed, that each class in ``properties``
has.
"""
NAMES = ("a", "A", "ab", "AB", "b", "abab", "a-b", "a.b", "a1", "12", "orders.eu", "orders-1")


def among(pattern: str) -> list[str]:
    return [name for name in NAMES if compiled(pattern).fullmatch(name)]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        (r"orders[.-].*", ["orders.eu", "orders-1"]),
        (r"[a-z&&[^a]]", ["b"]),
        (r"[a-c[0-9]]+", ["a", "ab", "b", "abab", "a1", "12"]),
        (r"\p{Alpha}+", ["a", "A", "ab", "AB", "b", "abab"]),
        (r"\P{L}+", ["12"]),
        (r"\Qa.b\E", ["a.b"]),
        (r"a(?i)B|b", ["ab", "b"]),
        (r"(?i:a)b", ["ab"]),
        (r"(?x) a b  # both", ["ab"]),
        (r"(?<two>ab)\k<two>", ["abab"]),
        (r"(a)(b)\1\2", ["abab"]),
        (r"(?>a|ab)b?", ["a", "ab"]),
        (r"[ab]*+", ["a", "ab", "b", "abab"]),
        (r"[ab]*+b", []),
        (r"\x61\u0062", ["ab"]),
        (r"a|", ["a"]),
        (r"(?<=a|or)[b1]|a(?<=a|or)b", ["ab"]),
        (r"a(?<!b|c)b", ["ab"]),
        (r"\p{javaLowerCase}\p{IsLatin}", ["ab"]),
        (r"(?i)\P{Lower}+", ["12"]),
        (r"\p{IsPunctuation}|\p{gc=Nd}+|\p{blk=BasicLatin}", ["a", "A", "b", "12"]),
        (r"(?x)[a & & [^b]] b", ["ab"]),
        (r"((a)b)\1", ["abab"]),
    ],
)
def test_a_pattern_means_what_it_means_in_java(pattern: str, names: list[str]) -> None:
    assert among(pattern) == names


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(", "')' is missing"),
        ("a)", "unmatched ')'"),
        ("[a", "']' is missing"),
        ("*a", "'*' with nothing to repeat"),
        ("a**", "a repetition"),
        ("a{,2}", "{,2}"),
        (r"\y", r"\y"),
        (r"(?P<x>a)", "(?P<x>a"),
        (r"(?#x)", "(?#x"),
        (r"\p{IsGreek}", r"\p{IsGreek}"),
        (r"\b{g}", r"\b{"),
        ("(?U)a", "(?U"),
        ("(?<=a+)b", "look-behind"),
        (r"(a)(?<=\1)", "a reference in a look-behind"),
        (r"\1(a)", "group 1, which does not stand before it"),
        (r"(a)*\1", "group 1 in a repeated"),
        (r"(?=(a))\1", "group 1 in a repeated, atomic or looked-around"),
        (r"(a\1)", "from inside of it"),
        ("a{99999999999}", "{99999999999}"),
        ("a{" + "9" * 5000 + "}", "9}"),
        ("(?:^|a){2}", "of a part with '^'"),
        ("{2}", "nothing to repeat"),
        (r"a{\Q2\E}", "a quotation inside"),
        (r"\x\Q61\E", "a quotation inside"),
        (r"(?x)\01 41", "three digits"),
        ("(?iu)\u017f", "beyond ASCII"),
        ("[a&&]", "nothing behind"),
        ("[a&&&b]", "'&&&'"),
        (r"[a-\d]", "the range from"),
        (r"\p{IsTitlecase}", r"\p{IsTitlecase}"),
        (r"\N{DIGIT ONE}", r"\N"),
        ("(?(1)a|b)", "(?(1"),
        (r"\k{n}", r"\k<"),
        ("(?<n>a)(?<n>b)", "the group name 'n'"),
    ],
)
def test_what_java_or_python_cannot_do_is_refused_by_name(pattern: str, said: str) -> None:
    with pytest.raises(BadPattern) as refusal:
        compiled(pattern)
    assert said in str(refusal.value)
    assert repr(pattern) in str(refusal.value)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("[^a[b]]", "a class in one that is negated"),
        ("[^a&&b]", "'&&' in a class that is negated"),
        ("[ab&&[b]c]", "more than a class behind '&&'"),
        (r"(?i)\p{Lower}", r"\p{Lower} under (?i)"),
        (r"(?i)[^\p{Lu}]", r"\p{Lu} under (?i)"),
        (r"\X", r"\X"),
    ],
)
def test_what_older_releases_of_java_read_in_another_way_is_refused_to_who_asks_for_that(
    pattern: str, said: str
) -> None:
    compiled(pattern)
    with pytest.raises(BadPattern, match="releases of Java differ") as refusal:
        compiled(pattern, for_every_java=True)
    assert said in str(refusal.value)


def test_brackets_in_one_another_without_end_are_refused() -> None:
    with pytest.raises(BadPattern, match="too many brackets"):
        compiled("(" * 20_000 + ")" * 20_000)
    assert compiled("(?:" * 50 + "a" + ")" * 50).fullmatch("a")


def test_a_recorded_pattern_matches_what_java_matches_or_is_refused() -> None:
    names = RECORDED["names"].split()
    taken = 0
    for pattern, theirs in RECORDED["patterns"].items():
        try:
            expression = compiled(pattern)
        except BadPattern:
            continue
        assert theirs is not None, f"Java refuses {pattern!r}"
        assert [name for name in names if expression.fullmatch(name)] == theirs.split(), pattern
        taken += 1
    assert taken > 350


@pytest.mark.parametrize("form", [r"\p{%s}", r"[\p{%s}]", r"(?i:\p{%s})"])
def test_a_class_of_characters_with_a_name_has_the_characters_that_java_has(form: str) -> None:
    every = [chr(code) for code in range(128) if code != 10]
    taken = 0
    for name, theirs in RECORDED["properties"].items():
        try:
            expression = compiled(form % name)
        except BadPattern:
            continue
        assert theirs is not None, f"Java refuses {name!r}"
        wanted = set(theirs) | (set(theirs.swapcase()) if "(?i" in form else set())
        assert {character for character in every if expression.fullmatch(character)} == wanted, name
        taken += 1
    assert taken > 100
