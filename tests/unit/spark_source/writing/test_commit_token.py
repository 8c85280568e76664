"""The token of a sink: what it says about a batch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pyspark_minikafka.writing.commit_token import CommitToken, TokenMismatch, is_committed

BATCH_7 = CommitToken(7, "query", 100, "plan")


def test_a_token_is_read_as_it_was_written() -> None:
    assert CommitToken.of_bytes(BATCH_7.to_bytes()) == BATCH_7


def test_a_token_of_a_part_is_refused_by_releases_without_portions() -> None:
    part = replace(BATCH_7, copied=3)
    assert CommitToken.of_bytes(part.to_bytes()) == part
    assert b'"version":2' in part.to_bytes()


@pytest.mark.parametrize("value", [b"", b"{}", b"7", b'{"version":3}', b"\xff"])
def test_a_record_that_is_no_token_is_an_error(value: bytes) -> None:
    with pytest.raises(TokenMismatch, match="is no token of this release"):
        CommitToken.of_bytes(value)


@pytest.mark.parametrize("token", [None, replace(BATCH_7, batch=6, plan="other"), replace(BATCH_7, batch=0)])
def test_a_batch_after_the_token_is_not_committed(token: CommitToken | None) -> None:
    assert not is_committed(token, BATCH_7, "s")


@pytest.mark.parametrize(
    "token", [BATCH_7, replace(BATCH_7, rows=99), replace(BATCH_7, plan=None)], ids=["same", "rows", "plan"]
)
def test_a_batch_that_runs_again_is_committed(token: CommitToken) -> None:
    assert is_committed(token, BATCH_7, "s")


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (
            replace(BATCH_7, batch=8),
            r"batch 7 cannot be written: batch 8 of minikafka\.sink\.id=s is committed",
        ),
        (replace(BATCH_7, query="other"), r"minikafka\.sink\.id=s belongs to the query other"),
        (replace(BATCH_7, plan="other"), "is committed with other offsets than the checkpoint has"),
    ],
    ids=["later batch", "other query", "other plan"],
)
def test_a_token_of_something_else_is_an_error(token: CommitToken, text: str) -> None:
    with pytest.raises(TokenMismatch, match=text):
        is_committed(token, BATCH_7, "s")
