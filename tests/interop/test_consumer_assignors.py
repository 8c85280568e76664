"""Owners of partitions, and registrations of filters, as the classes of Apache Kafka 0.10.1.1 give them: at
random.
"""

from __future__ import annotations

import base64
import random
from pathlib import Path

import pytest

from minikafka.base.errors import ConfigError
from minikafka.clients.consumer.assignment import (
    STRATEGIES,
    AssignmentContext,
    StaticTopicCount,
    TopicCount,
    WildcardTopicCount,
    create_assignor,
    make_registration,
)
from minikafka.clients.consumer.topic_filter import Blacklist, TopicFilter, Whitelist
from minikafka.registry.memory import MemoryStore, MemoryZooKeeper
from minikafka.registry.topics import TopicAssignment
from tests.interop.releases import KAFKA_0_10
from tests.support.seeds import seeds

PROGRAM = Path(__file__).parent / "java" / "Consumers.java"
TOPICS = ["orders", "payments", "a", "b", "Ab", "x.y", "x-y", "t_1", "t1", "__consumer_offsets"]
PATTERNS = [
    *(".*", "ord.*,pay.*", "[a-z&&[^b]]+", r"x\.y", r"x[.\-]y|\w+", "(?i)A.*", r"\p{Alpha}+", r"\Qx.y\E|t\d"),
    *("'a,b'", '"t_?1"', r"(a|b)|\D++", r"[^\d]+", ".", "(?!ord).*", r"x\Wy", r"(\w).\1|(?>a*)b", " a , b "),
]
ODD = "a.b|c,\\\"'/ \t\v\x7f\x85é[]^-{}()2d*+?Qp"

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def topic_count(consumer: str, kind: str, topics: list[str], chance: random.Random) -> TopicCount:
    """Return a random subscription of one consumer."""
    streams = chance.choice([1, 1, 2, 3, 11])
    if kind == "static":
        return StaticTopicCount(consumer, {topic: chance.choice([1, 2, streams]) for topic in topics})
    filters: dict[str, type[TopicFilter]] = {"white": Whitelist, "black": Blacklist}
    return WildcardTopicCount(consumer, filters[kind](chance.choice(PATTERNS)), streams, True, list)


def group(chance: random.Random) -> tuple[MemoryStore, list[str], list[str]]:
    """A group in ZooKeeper, its consumers, and the lines that say the same to the release."""
    store, lines = MemoryZooKeeper().connect(), ["new"]

    def put(path: str, data: bytes) -> None:
        store.create(path, data, make_parents=True)
        lines.append(f"znode\t{path}\t{data.decode()}")

    for topic in chance.sample(TOPICS, chance.randint(1, len(TOPICS))):
        numbers = list(range(chance.choice([1, 2, 3, 5, 10, 30])))
        chance.shuffle(numbers)
        put(f"/brokers/topics/{topic}", TopicAssignment(dict.fromkeys(numbers, (0,))).to_json())
    consumers = sorted({f"g_c{chance.randint(1, 12)}" for _ in range(chance.randint(1, 6))})
    topics, kinds = (
        chance.sample(TOPICS, 3),
        chance.choice([["static"], ["white"], ["static", "white", "black"]]),
    )
    same = chance.randrange(1 << 32) if chance.random() < 0.5 else None
    for consumer in consumers:
        one = random.Random(same) if same is not None else chance
        count = topic_count(consumer, one.choice(kinds), topics[: one.randint(1, 3)], one)
        put(f"/consumers/g/ids/{consumer}", make_registration(count, 1).to_json())
    return store, consumers, lines


def owners(strategy: str, ctx: AssignmentContext) -> str:
    """In the words of the program."""
    try:
        found = create_assignor(strategy).assign(ctx)
    except ConfigError:
        return "refused"
    every = (f"{tp.topic}/{tp.partition}={one}" for share in found.values() for tp, one in share.items())
    return "\n".join(sorted(every))


def registered(kind: type[TopicFilter], raw: str) -> str:
    """In the words of the program."""
    count = WildcardTopicCount("c", kind(raw), 2, True, list)
    return make_registration(count, 1).to_json().decode()


@pytest.mark.parametrize("seed", seeds(1))
def test_random_groups_and_filters_are_what_the_release_makes_of_them(tmp_path: Path, seed: int) -> None:
    chance, asked, ours = random.Random(seed), list[str](), list[tuple[str, str]]()
    for _ in range(100):
        store, consumers, lines = group(chance)
        asked += lines
        for strategy in STRATEGIES:
            me, exclude = chance.choice(consumers), chance.choice([True, False])
            asked.append(f"assign\t{strategy}\t{me}\t{str(exclude).lower()}")
            ours.append((asked[-1], owners(strategy, AssignmentContext("g", me, exclude, store))))
    for _ in range(300):
        raw, kind = (
            "".join(chance.choices(ODD, k=chance.randint(1, 8))),
            chance.choice([Whitelist, Blacklist]),
        )
        try:
            written = registered(kind, raw)
        except ConfigError:
            continue
        asked.append(f"filter\t{kind.pattern}\t{in_base64(raw)}")
        ours.append((repr(raw), written))
    (tmp_path / "asked").write_text("\n".join(asked), "utf-8")
    printed = KAFKA_0_10.run(str(PROGRAM), str(tmp_path / "asked")).out.split("\n")
    theirs = ["\n".join(sorted(base64.b64decode(line).decode().split("\n"))) for line in printed[:-1]]
    for (what, mine), other in zip(ours, theirs, strict=True):
        assert mine == other, f"{what} (seed {seed})"
    assert "refused" in theirs
    assert sum("white_list" in subscription or "black_list" in subscription for subscription in theirs) > 50
