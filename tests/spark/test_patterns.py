"""Topic patterns, compared with Java's own regular expressions, which Spark's connector uses."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from minikafka.clients.java_regex.translator import BadPattern, compile_pattern
from tests.support.seeds import seeds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def split(text: str) -> list[str]:
    return text.split()


NAMES = split("a b ab AB aB abc a.b a-b a_b orders orders-1 Orders x12 0 12 a1b2 - _ . aaa abab ABC-12 k zz")
ATOMS = split(r"""
    a b A 1 . - _ \. \d \w \W \S [a-c] [^a-c] [a-z&&[^b]] [a-c[x-z]] [a-z&&b-y&&[^c]] \p{Alpha} \P{Alpha}
    \p{Lu} \pL [\p{Punct}] [\w.-] []a] [^]a] [a\-c] [\d-a] [a-] (a) (?:ab) (?<n>a|b) \1 \2 \k<n> (?i) (?i:ab)
    (?-i) (?=a) (?!b) (?<=a) (?<!a) (?>a*) \Qa.b\E \Qa ^ $ \A \z \Z \G \b \B \x61 \u0062 \x{61} \0141 \cA \e
    \R \X \h \H \v \V [a&&b] [a&b] [a&&] (?u) (?U) (?s) (?m)a [\Qa-c\E] [a-\d] (?P<x>a) \p{IsLatin} \y \b{g}
    } ] { ( ) [ \ | (? (a a) [b-a] (?i)[a-b] (?i)\p{Lower} (?i)(a)\1 [^a-c&&b-d] [ab&&[bc]d] [a[b]c-e]
    [^[a]b] [a-[b]] [!--] [\w&&\D] [^a&&[^b]] (b) (?:(a)|b) (?:a|ab) (?:a?b)* (|a) () (?:\1x|(a)) (?=(a))
    (?!(a)) (?<=a|ab) (?<!a|bc) (?<=a?) (?<=\1) (?x)[a& &b] (?x)\01 (?iu)k (?i:\1) (?(1)a|b) \p{javaLetter}
    \p{IsCommon} \p{gc=Lu} \P{Lower} {2} a{99999999999} \x\Q61\E
""")
TIMES = ["", "", "", *split("* + ? {2} {1,} {1,2} *? +? ?? *+ ++ ?+ {2}+ {1,2}? ** {,2} {2,1}")]


def patterns(chance: random.Random, count: int) -> list[str]:
    found = chance.sample([atom + times for atom in ATOMS for times in TIMES], count)
    for _ in range(count):
        parts = [chance.choice(ATOMS) + chance.choice(TIMES) for _ in range(chance.randint(1, 4))]
        pattern = chance.choice(["", "", "|"]).join(parts)
        found.append(f"({pattern}){chance.choice(TIMES)}" if chance.random() < 0.3 else pattern)
    return found


@pytest.mark.parametrize("seed", seeds(1))
def test_pattern_matches_as_in_java_or_is_refused(spark: SparkSession, seed: int) -> None:
    jvm: Any = spark.sparkContext._jvm
    names = jvm.java.util.ArrayList()
    for name in NAMES:
        names.add(name)
    compiled = 0
    for pattern in patterns(random.Random(seed), 400):
        try:
            expression = compile_pattern(pattern)
        except BadPattern:
            continue
        compiled += 1
        try:
            matches = jvm.java.util.regex.Pattern.compile(pattern).asMatchPredicate()
        except Exception as refusal:
            raise AssertionError(f"Java refuses {pattern!r} (seed {seed})") from refusal
        theirs = jvm.java.lang.String.join("\n", names.stream().filter(matches).toList())
        ours = "\n".join(name for name in NAMES if expression.fullmatch(name))
        assert ours == theirs, f"{pattern!r} (seed {seed})"
    assert compiled > 150
