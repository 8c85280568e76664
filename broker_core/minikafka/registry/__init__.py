"""ZooKeeper: the znodes of Kafka 0.10, and a port that reads, watches and writes them.

    store          the port
    zookeeper      the port over kazoo, with sessions and reconnection
    memory         the port in memory, with sessions and watches, for tests
    paths          the paths of znodes
    node           the JSON object in a znode
    znodes         reads znodes as values, and passes over invalid ones
    kinds          the table of all kinds of znodes

One module for each noun has its values, their JSON and their readers: ``brokers``, ``topics``,
``controller``, ``cluster``, ``entity_configs``, ``users``, ``consumers`` (with ``consumer_session``,
``consumer_offsets``, ``sole_consumer``) and ``acls``.

Imports ``base``.
"""
