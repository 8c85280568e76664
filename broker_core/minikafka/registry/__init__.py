"""ZooKeeper: the paths and JSON that Kafka 0.10 keeps there, and a port to read, watch and write them.

    store          the port
    zookeeper      the port over kazoo, with sessions and reconnection
    memory         the port in memory, with sessions and watches, for tests
    paths          znode paths and their JSON; ``acl_paths`` and ``admin_paths`` beside it
    consumers      znodes of consumer groups

Imports ``base``.
"""
