"""What is said of a name that nobody knows."""

from __future__ import annotations

from minikafka.base.config.near_misses import did_you_mean, hinted, nearest, with_hints

KNOWN = {"num.partitions", "num.io.threads", "log.dirs"}


def test_the_nearest_name_is_the_one_that_was_meant() -> None:
    assert nearest("num.partitons", KNOWN) == "num.partitions"
    assert nearest("zzz", KNOWN) is None
    assert nearest("log.dir", KNOWN, 1.0) is None


def test_a_hint_is_put_behind_a_sentence_or_a_name() -> None:
    assert did_you_mean("log.dirs") == "; did you mean log.dirs?"
    assert hinted("log.dir", "log.dirs") == "log.dir (did you mean log.dirs?)"
    assert (did_you_mean(None), hinted("zzz", None)) == ("", "zzz")


def test_each_of_several_names_has_its_hint() -> None:
    assert with_hints(["log.dirz", "zzz"], KNOWN) == "log.dirz (did you mean log.dirs?), zzz"
    assert with_hints([], KNOWN) == ""
