"""``meta.properties`` of a data directory: which broker of which cluster its data belongs to.

    version=0
    broker.id=3
    cluster.id=SM7-…

Java properties; other properties belong to later releases and are left alone. Every data directory of a
broker has the file, and all must name the same broker and cluster. 0.10.1 writes no cluster and ignores it;
later releases write it and do not start in another cluster.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass

from minikafka.base.config.property_files import parse_properties, properties_text
from minikafka.base.errors import ConfigError, StorageError
from minikafka.base.files import Files, read_file, replace_file

META_FILE = "meta.properties"
VERSION = 0

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The content of ``meta.properties``."""

    broker_id: int
    cluster_id: str | None = None
    """None in a file of 0.10.1."""


def read_meta(files: Files, directory: str) -> MetaProperties | None:
    """Read the file in ``directory``; None when it is absent. Raises StorageError when it is not valid."""
    path = os.path.join(directory, META_FILE)
    try:
        values = parse_properties(read_file(files, path).decode("latin-1"), path)
    except FileNotFoundError:
        return None
    except ConfigError as error:
        raise StorageError(str(error)) from None
    if values.get("version") != str(VERSION):
        raise StorageError(f"{path}: version={values.get('version')}, expected version={VERSION}")
    broker_id = values.get("broker.id", "")
    if not (broker_id.isascii() and broker_id.isdecimal()):
        raise StorageError(f"{path}: broker.id={broker_id!r}, expected a whole number")
    return MetaProperties(int(broker_id), values.get("cluster.id") or None)


def write_meta(files: Files, directory: str, meta: MetaProperties) -> None:
    """Write the file durably."""
    properties = {"version": str(VERSION), "broker.id": str(meta.broker_id)}
    if meta.cluster_id is not None:
        properties["cluster.id"] = meta.cluster_id
    text = "#\n" + properties_text(properties)
    replace_file(files, os.path.join(directory, META_FILE), text.encode("latin-1"))


def _add_cluster(files: Files, directory: str, cluster_id: str) -> None:
    """Add the cluster id to a file that has none; if that fails, the next start retries."""
    path = os.path.join(directory, META_FILE)
    try:
        text = read_file(files, path).rstrip(b"\n")
        replace_file(files, path, text + f"\ncluster.id={cluster_id}\n".encode("latin-1"))
    except StorageError as error:
        _logger.warning("%s; the directory still has no cluster.id", error)


def known_cluster(files: Files, directories: Sequence[str]) -> str | None:
    """Return the cluster of the directories; None when no file names one.

    Raises StorageError when they disagree. Unreadable files are ignored here and reported by
    ``claim_directories``.
    """
    found: dict[str, str] = {}
    for directory in directories:
        with contextlib.suppress(StorageError):
            meta = read_meta(files, directory)
            if meta is not None and meta.cluster_id is not None:
                found[directory] = meta.cluster_id
    if len(set(found.values())) > 1:
        listed = ", ".join(f"{directory} of cluster {cluster}" for directory, cluster in found.items())
        raise StorageError(
            f"the data directories belong to different clusters: {listed}; configure those of one cluster"
        )
    return next(iter(found.values()), None)


def agreed_meta(files: Files, directories: Sequence[str]) -> MetaProperties | None:
    """Return the properties on which the files agree; None without files.

    Raises StorageError when they disagree.
    """
    read = {directory: read_meta(files, directory) for directory in directories}
    found = {directory: meta for directory, meta in read.items() if meta is not None}
    if len({meta.broker_id for meta in found.values()}) > 1:
        listed = ", ".join(f"{directory} of broker {meta.broker_id}" for directory, meta in found.items())
        raise StorageError(
            f"the data directories belong to different brokers: {listed}; configure those of one broker"
        )
    return next(iter(found.values()), None)


def claim_directories(
    files: Files, directories: Sequence[str], broker_id: int | None, cluster_id: str | None = None
) -> MetaProperties | None:
    """Check that the directories belong to ``broker_id``, write missing files, and add a missing cluster id.

    With ``broker_id`` None the files decide; without files nothing is written and None is returned.
    Raises StorageError when the data belongs to another broker.
    """
    agreed = agreed_meta(files, directories)
    if broker_id is not None and agreed is not None and agreed.broker_id != broker_id:
        raise StorageError(
            f"the data in {', '.join(directories)} belongs to broker {agreed.broker_id}, not to broker "
            f"{broker_id}; set broker.id={agreed.broker_id}, or configure another directory"
        )
    own = broker_id if agreed is None else agreed.broker_id
    if own is None:
        return None
    meta = MetaProperties(own, cluster_id)
    for directory in directories:
        found = read_meta(files, directory)
        if found is None:
            write_meta(files, directory, meta)
        elif found.cluster_id is None and cluster_id is not None:
            _add_cluster(files, directory, cluster_id)
    return meta
