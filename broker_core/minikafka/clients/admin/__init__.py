"""Administration of a cluster by Kafka's protocol: topics, settings, ACLs, groups, offsets, log directories.

What brokers of 0.10 have no requests for has a second way, ZooKeeper (``clients.admin.zookeeper``): a port
such as ``PartitionsBackend`` hides which one is used. Imports ``clients.network``, ``fetch`` and ``group``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minikafka.base.exports import lazy_exports

if TYPE_CHECKING:
    from minikafka.clients.admin.admin import Admin
    from minikafka.clients.admin.configs import Setting
    from minikafka.clients.admin.groups import GroupAdmin
    from minikafka.clients.admin.topics import NewTopic

__all__ = ["Admin", "GroupAdmin", "NewTopic", "Setting"]

__getattr__ = lazy_exports(
    __name__,
    {
        "Admin": "minikafka.clients.admin.admin",
        "GroupAdmin": "minikafka.clients.admin.groups",
        "NewTopic": "minikafka.clients.admin.topics",
        "Setting": "minikafka.clients.admin.configs",
    },
)
