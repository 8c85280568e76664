"""``clients/consumer/topic_filter``: which topics a pattern chooses, as 0.10.1's ``TopicFilterTest`` and
the recorded znodes have it.
"""

from __future__ import annotations

import pytest

from minikafka.base.errors import ConfigError
from minikafka.clients.consumer.topic_filter import Blacklist, TopicFilter, Whitelist


@pytest.mark.parametrize(
    ("raw", "topic", "allowed"),
    [
        ("white1,white2", "white2", True),
        ("white1,white2", "black1", False),
        (".+", "alltopics", True),
        ("white_listed-topic.+", "white_listed-topic1", True),
        ("white_listed-topic.+", "black1", False),
        ("test-(?!bad\\b)[\\w]+", "test-good", True),
        ("test-(?!bad\\b)[\\w]+", "test-bad", False),
        ("test-(?!bad\\b)[\\w]+", "test-badly", True),
        ("ord", "orders", False),
    ],
)
def test_whitelist_allows_topics_whose_whole_name_matches(raw: str, topic: str, allowed: bool) -> None:
    assert Whitelist(raw).is_topic_allowed(topic, True) is allowed


@pytest.mark.parametrize(
    ("raw", "topic", "allowed"),
    [("black1", "black1", False), ("black1", "black10", True), ("a|b", "b", False)],
)
def test_blacklist_allows_all_other_topics(raw: str, topic: str, allowed: bool) -> None:
    assert Blacklist(raw).is_topic_allowed(topic, True) is allowed


@pytest.mark.parametrize("topic_filter", [Whitelist(".*"), Blacklist("black1")], ids=repr)
def test_offsets_topic_is_read_only_if_not_excluded(topic_filter: TopicFilter) -> None:
    assert not topic_filter.is_topic_allowed("__consumer_offsets", True)
    assert topic_filter.is_topic_allowed("__consumer_offsets", False)


@pytest.mark.parametrize(
    ("raw", "regex"),
    [
        ("ord.*,pay.*", "ord.*|pay.*"),
        ("  a , b\t", "a|b"),
        ('"a,b"', "a|b"),
        ("'\"a'", "a"),
        ("a'b", "a'b"),
        ('" a"', "a"),
        ("", ""),
    ],
)
def test_comma_means_or_and_outer_blanks_and_quotes_are_removed(raw: str, regex: str) -> None:
    assert Whitelist(raw).regex == regex


def test_registered_filter_round_trips() -> None:
    written = Whitelist(' "a.*, b\\d" ')
    assert Whitelist(written.regex) == written
    assert Whitelist("a") != Blacklist("a")


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("a{2,3}", "a comma means '|'"),
        ("(", "missing ')'"),
        ("(?P<n>a)", "(?P<n>a"),
        ("(?(1)a|b)", "(?(1"),
        ("(?#x)a", "(?#x"),
        ("a{x}", "{x}"),
    ],
)
def test_pattern_that_java_refuses_is_refused(raw: str, text: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        Whitelist(raw)
    assert text in str(refusal.value)
    assert repr(raw) in str(refusal.value)
