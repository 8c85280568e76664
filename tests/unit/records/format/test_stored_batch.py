"""``stored_batch``: a stored batch is set back to what was sent, and known again."""

from __future__ import annotations

import pytest

from minikafka.log.config import LogConfig
from minikafka.records.append.validation import validate
from minikafka.records.format.batch import build_batch, set_offset_and_epoch
from minikafka.records.format.message_set import Codec, Record
from minikafka.records.format.stored_batch import OtherBatch, as_sent, sent_header
from minikafka.records.kernels import layout

STAMPED = LogConfig({"message.timestamp.type": "LogAppendTime"}).message_limits


def sent(sequence: int = 0, value: bytes = b"v", codec: Codec = Codec.NONE) -> bytes:
    records = [Record(b"k", value, 5), Record(None, None, 3)]
    return build_batch(records, codec=codec, producer_id=7, producer_epoch=1, base_sequence=sequence)


def stored(batch: bytes) -> bytearray:
    """The batch in a log that stamps the time of the append."""
    view = validate(bytearray(batch), STAMPED, 99).data
    set_offset_and_epoch(view, 40, 3)
    assert bytes(view[12:]) != batch[12:]
    return bytearray(view)


@pytest.mark.parametrize("codec", Codec)
def test_stamped_batch_is_set_back_to_what_was_sent(codec: Codec) -> None:
    batch = sent(codec=codec)
    found = as_sent(stored(batch), sent_header(batch))
    position = layout.MAGIC_AT  # the epoch before it is the leader's
    assert (found[:8], found[position:]) == (bytes(8), batch[position:])


def test_batch_with_other_numbers_is_another_one() -> None:
    with pytest.raises(OtherBatch, match="another batch is at offset 40"):
        as_sent(stored(sent(sequence=2)), sent_header(sent()))


def test_changed_records_do_not_fit_the_checksum() -> None:
    damaged = stored(sent())
    damaged[-1] ^= 1
    with pytest.raises(OtherBatch, match="the batch at offset 40 is corrupt"):
        as_sent(damaged, sent_header(sent()))


def test_half_a_header_is_another_batch() -> None:
    with pytest.raises(OtherBatch, match="another batch"):
        as_sent(stored(sent())[:50], sent_header(sent()))
