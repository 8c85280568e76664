"""Java's regular expressions on names of topics. Java itself is asked in tests/spark/test_patterns.py."""

from __future__ import annotations

import pytest

from minikafka.clients.java_regex import BadPattern, compiled

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
    ],
)
def test_what_java_or_python_cannot_do_is_refused_by_name(pattern: str, said: str) -> None:
    with pytest.raises(BadPattern) as refusal:
        compiled(pattern)
    assert said in str(refusal.value)
    assert pattern in str(refusal.value)
