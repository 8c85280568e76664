"""``meta.properties`` of a data directory: which broker its data belongs to.

    version=0
    broker.id=3

Java properties; lines with ``#`` or ``!`` are comments; other properties are kept out of the way of later
releases and left alone. Every data directory of a broker has the file, and all must name the same broker.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from minikafka.base.errors import StorageError
from minikafka.base.files import Files, read_file, replace_file

META_FILE = "meta.properties"
VERSION = 0


@dataclass(frozen=True, slots=True)
class Meta:
    """What the file says."""

    broker_id: int


def read_meta(files: Files, directory: str) -> Meta | None:
    """The file in ``directory``; None when it is absent. StorageError when it cannot be understood."""
    path = os.path.join(directory, META_FILE)
    try:
        text = read_file(files, path).decode("latin-1")
    except FileNotFoundError:
        return None
    values = {}
    for line in text.splitlines():
        name, separator, value = line.partition("=")
        if separator and not line.lstrip().startswith(("#", "!")):
            values[name.strip()] = value.strip()
    if values.get("version") != str(VERSION):
        raise StorageError(f"{path}: version={values.get('version')}, only version={VERSION} can be read")
    broker_id = values.get("broker.id", "")
    if not broker_id.isdigit():
        raise StorageError(f"{path}: broker.id={broker_id!r} is not a broker's number")
    return Meta(int(broker_id))


def write_meta(files: Files, directory: str, meta: Meta) -> None:
    """Write the file durably."""
    text = f"#\nversion={VERSION}\nbroker.id={meta.broker_id}\n"
    replace_file(files, os.path.join(directory, META_FILE), text.encode("ascii"))


def agreed_meta(files: Files, directories: Sequence[str]) -> Meta | None:
    """What the directories that have the file say; None when none has it. StorageError when they disagree."""
    read = {directory: read_meta(files, directory) for directory in directories}
    found = {directory: meta for directory, meta in read.items() if meta is not None}
    if len(set(found.values())) > 1:
        listed = ", ".join(f"{directory} of broker {meta.broker_id}" for directory, meta in found.items())
        raise StorageError(
            f"the data directories belong to different brokers: {listed}; name those of one broker"
        )
    return next(iter(found.values()), None)


def claim_directories(files: Files, directories: Sequence[str], broker_id: int | None) -> Meta | None:
    """Check that the directories are those of ``broker_id`` and write the file where it is absent.

    With ``broker_id`` None the directories decide; None is returned when they do not say either, and nothing
    is written. StorageError when the data belongs to another broker.
    """
    agreed = agreed_meta(files, directories)
    if broker_id is not None and agreed is not None and agreed.broker_id != broker_id:
        raise StorageError(
            f"the data in {', '.join(directories)} belongs to broker {agreed.broker_id}, this one is broker "
            f"{broker_id}; set broker.id to the former or name another directory"
        )
    meta = agreed if broker_id is None else Meta(broker_id)
    if meta is not None:
        for directory in directories:
            if read_meta(files, directory) is None:
                write_meta(files, directory, meta)
    return meta
