"""Unknown names are reported with their closest match."""

from __future__ import annotations

from minikafka.base.config.unknown_names import closest_match, did_you_mean, with_suggestion, with_suggestions

KNOWN = {"num.partitions", "num.io.threads", "log.dirs"}


def test_closest_match_is_the_most_similar_name() -> None:
    assert closest_match("num.partitons", KNOWN) == "num.partitions"
    assert closest_match("zzz", KNOWN) is None
    assert closest_match("log.dir", KNOWN, 1.0) is None


def test_suggestion_follows_a_sentence_or_a_name() -> None:
    assert did_you_mean("log.dirs") == "; did you mean log.dirs?"
    assert with_suggestion("log.dir", "log.dirs") == "log.dir (did you mean log.dirs?)"
    assert (did_you_mean(None), with_suggestion("zzz", None)) == ("", "zzz")


def test_each_unknown_name_gets_its_suggestion() -> None:
    assert with_suggestions(["log.dirz", "zzz"], KNOWN) == "log.dirz (did you mean log.dirs?), zzz"
    assert with_suggestions([], KNOWN) == ""
