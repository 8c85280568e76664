"""Java's regular expressions on topic names. Java's own results are in the data; tests/spark/test_patterns.py
compares random patterns with a running Java.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minikafka.clients.java_regex.translator import BadPattern, compile_pattern

RECORDED = json.loads((Path(__file__).parents[3] / "data" / "java-regex.json").read_text(encoding="utf-8"))
"""Recorded with Java 17; 25 has the same results: ``names``; those of them that each of ``patterns`` matches
(null where Java refuses it); and the ASCII characters, without the line feed, of each class in
``properties``.
"""
NAMES = ("a", "A", "ab", "AB", "b", "abab", "a-b", "a.b", "a1", "12", "orders.eu", "orders-1")


def among(pattern: str) -> list[str]:
    return [name for name in NAMES if compile_pattern(pattern).fullmatch(name)]


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
def test_pattern_means_what_it_means_in_java(pattern: str, names: list[str]) -> None:
    assert among(pattern) == names


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("(", "missing ')' at position 1"),
        ("a)", "unmatched ')' at position 1"),
        ("[a", "missing ']' at position 2"),
        ("a{2", "missing '}' of a quantifier"),
        ("\\", "unexpected end of the pattern"),
        ("*a", "'*' with nothing to repeat"),
        ("a**", "second quantifier '*'"),
        ("a{,2}", "{,2}"),
        (r"\y", r"\y"),
        (r"(?P<x>a)", "(?P<x>a"),
        (r"(?#x)", "(?#x"),
        (r"\p{IsGreek}", r"\p{IsGreek}"),
        (r"\b{g}", r"\b{"),
        ("(?U)a", "(?U"),
        ("(?<=a+)b", "look-behind"),
        (r"(a)(?<=\1)", "reference in a look-behind"),
        (r"\1(a)", "group 1, which does not precede it"),
        (r"(a)*\1", "group 1 in a repeated"),
        (r"(?=(a))\1", "group 1 in a repeated, atomic or look-around"),
        (r"(a\1)", "group 1 inside the group"),
        ("a{99999999999}", "{99999999999}"),
        ("a{" + "9" * 5000 + "}", "9}"),
        ("(?:^|a){2}", "of a part with '^'"),
        ("{2}", "nothing to repeat"),
        (r"a{\Q2\E}", "quoted text inside"),
        (r"\x\Q61\E", "quoted text inside"),
        (r"(?x)\01 41", "three digits"),
        ("(?iu)\u017f", "beyond ASCII"),
        ("[a&&]", "nothing after '&&'"),
        ("[a&&&b]", "'&&&'"),
        (r"[a-\d]", "invalid range from 'a'"),
        (r"\p{IsTitlecase}", r"\p{IsTitlecase}"),
        (r"\N{DIGIT ONE}", r"\N"),
        ("(?(1)a|b)", "(?(1"),
        (r"\k{n}", r"\k<"),
        ("(?<n>a)(?<n>b)", "group name 'n'"),
    ],
)
def test_construct_that_java_or_python_lacks_is_named(pattern: str, problem: str) -> None:
    with pytest.raises(BadPattern) as refusal:
        compile_pattern(pattern)
    assert problem in str(refusal.value)
    assert repr(pattern) in str(refusal.value)


@pytest.mark.parametrize(
    ("pattern", "construct"),
    [
        ("[^a[b]]", "a class nested in a negated class"),
        ("[^a&&b]", "'&&' in a negated class"),
        ("[ab&&[b]c]", "more than a class after '&&'"),
        (r"(?i)\p{Lower}", r"\p{Lower} under (?i)"),
        (r"(?i)[^\p{Lu}]", r"\p{Lu} under (?i)"),
        (r"\X", r"\X"),
    ],
)
def test_construct_read_differently_by_java_releases_is_refused(pattern: str, construct: str) -> None:
    compile_pattern(pattern)
    with pytest.raises(BadPattern, match="releases of Java read differently") as refusal:
        compile_pattern(pattern, all_java_releases=True)
    assert construct in str(refusal.value)


def test_brackets_nested_too_deeply_are_refused() -> None:
    with pytest.raises(BadPattern, match="nested too deeply"):
        compile_pattern("(" * 20_000 + ")" * 20_000)
    assert compile_pattern("(?:" * 50 + "a" + ")" * 50).fullmatch("a")


def test_recorded_pattern_matches_as_in_java_or_is_refused() -> None:
    names = RECORDED["names"].split()
    compiled = 0
    for pattern, theirs in RECORDED["patterns"].items():
        try:
            expression = compile_pattern(pattern)
        except BadPattern:
            continue
        assert theirs is not None, f"Java refuses {pattern!r}"
        assert [name for name in names if expression.fullmatch(name)] == theirs.split(), pattern
        compiled += 1
    assert compiled > 350


@pytest.mark.parametrize("form", [r"\p{%s}", r"[\p{%s}]", r"(?i:\p{%s})"])
def test_named_character_class_has_the_characters_of_java(form: str) -> None:
    every = [chr(code) for code in range(128) if code != 10]
    compiled = 0
    for name, theirs in RECORDED["properties"].items():
        try:
            expression = compile_pattern(form % name)
        except BadPattern:
            continue
        assert theirs is not None, f"Java refuses {name!r}"
        wanted = set(theirs) | (set(theirs.swapcase()) if "(?i" in form else set())
        assert {character for character in every if expression.fullmatch(character)} == wanted, name
        compiled += 1
    assert compiled > 100
