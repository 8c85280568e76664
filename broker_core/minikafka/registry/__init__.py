"""ZooKeeper: the paths and JSON of Kafka 0.10, and a port that reads, watches and writes them.

    store          the port
    zookeeper      the port over kazoo, with sessions and reconnection
    memory         the port in memory, with sessions and watches, for tests
    paths          znode paths and their JSON; ``acl_paths`` and ``admin_paths`` have more of them
    node           the JSON object in a znode
    brokers        the live brokers
    consumers      the znodes of consumer groups
    acl_store      the ACLs
    entity_configs the settings of topics, clients and brokers

Imports ``base``.
"""
