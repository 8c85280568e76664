"""Administration through ZooKeeper, as by Kafka 0.10's tools: partitions, users, groups in ZooKeeper.

Imports ``registry`` and ``clients.zookeeper_metadata``.
"""
