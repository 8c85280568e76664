"""From ``--bootstrap`` or ``--data-dir`` to a connected client."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from minikafka.base.errors import BrokerError
from minikafka.base.ids import check_topic_name
from minikafka.cli.options import DEFAULT_BOOTSTRAP
from minikafka.clients.admin import Admin
from minikafka.clients.cluster import Cluster
from minikafka.clients.metadata import TopicMetadata

CLIENT_ID = "minikafka-cli"
REACH_TIMEOUT_MS = 5_000


@contextlib.contextmanager
def connected(bootstrap: str | None, data_dir: Path | None) -> Iterator[Cluster]:
    """A client of the cluster that the options name; closed at the end of the block."""
    cluster = Cluster(address_of(bootstrap, data_dir), client_id=CLIENT_ID)
    try:
        # Whoever types an address wants to know soon that nobody is there; requests may take longer.
        cluster.metadata(None, timeout_ms=REACH_TIMEOUT_MS)
        yield cluster
    finally:
        cluster.close()


def address_of(bootstrap: str | None, data_dir: Path | None) -> str:
    """The bootstrap list. A data directory wins, as MINIKAFKA_BOOTSTRAP may be set for everything else."""
    if data_dir is None:
        return bootstrap or DEFAULT_BOOTSTRAP
    from minikafka.cli.progress import patience
    from minikafka.embedded import local, owners

    # For as long as this command runs, not the nearest JVM above it, which may be the editor.
    itself = owners.owner_of(os.getpid())
    assert itself is not None
    with patience(f"starting in {data_dir}"):
        return local.ensure(str(data_dir), [itself]).bootstrap_servers


def existing_topic(admin: Admin, name: str) -> TopicMetadata:
    """What is known of a topic. Raises BrokerError where there is none, and never makes one."""
    check_topic_name(name)
    found = admin.describe_topics([name])[name]
    if isinstance(found, BrokerError):
        raise found
    return found
