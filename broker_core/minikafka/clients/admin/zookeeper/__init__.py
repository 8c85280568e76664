"""Administration through ZooKeeper, as by Kafka 0.10's tools: partitions, users, groups in ZooKeeper.

Imports ``registry``, ``clients.zookeeper_metadata`` and ``clients.admin``.
"""
