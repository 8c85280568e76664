"""Administration through ZooKeeper, as Kafka 0.10's own tools do it: elections, reassignments, old groups.

Imports ``registry`` and ``clients.zookeeper_metadata``.
"""
