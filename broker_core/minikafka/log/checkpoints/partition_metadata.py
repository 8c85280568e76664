"""The id of a log's topic, in the log's own directory: ``partition.metadata`` (KIP-516).

    version: 0
    topic_id: VNuEZmGWSK2D6MQIPJRByA

The bytes of Kafka 2.8 to 3.9: no newline at the end. The file goes with the log wherever it is moved, also to
a broker of Kafka, which refuses a log with another id than its topic's. Written to a temporary file, flushed
and renamed, so that it is never torn.
"""

from __future__ import annotations

import os

from minikafka.base.errors import StorageError
from minikafka.base.files import Files, read_file, replace_file
from minikafka.base.ids import uuid_in, uuid_text
from minikafka.log.layout import PARTITION_METADATA_FILE

VERSION = 0
_NO_ID = bytes(16)


def read_topic_id(files: Files, directory: str) -> bytes | None:
    """Return the topic id in a partition's directory; None without the file.

    Raises StorageError when the file is not valid: Kafka takes the data directory offline then, and here the
    log is not opened.
    """
    path = os.path.join(directory, PARTITION_METADATA_FILE)
    try:
        data = read_file(files, path)
    except FileNotFoundError:
        return None
    try:
        return _parse(data.decode("ascii"))
    except (ValueError, IndexError) as error:
        raise StorageError(
            f"{path} is not a partition metadata file of version {VERSION} ({error}), so that it is unknown "
            "to which topic the log belongs; restore the file, or remove it if the log belongs to the "
            "topic that has this name now"
        ) from None


def write_topic_id(files: Files, directory: str, topic_id: bytes) -> None:
    """Replace the file durably. Raises StorageError; FileNotFoundError when the directory is gone."""
    data = f"version: {VERSION}\ntopic_id: {uuid_text(topic_id)}".encode("ascii")
    replace_file(files, os.path.join(directory, PARTITION_METADATA_FILE), data)


def _parse(text: str) -> bytes:
    # Kafka reads the second word of both lines, and files of later versions too.
    (_, version), (_, topic_id) = (line.split() for line in text.splitlines()[:2])
    if int(version) < VERSION:
        raise ValueError(f"version {version}")
    uuid = uuid_in(topic_id)
    if uuid is None or uuid == _NO_ID:
        raise ValueError(f"invalid topic id {topic_id[:50]!r}")
    return uuid
