"""Everything that the broker reads, watches and writes in ZooKeeper.

``zookeeper_client`` keeps the session, registers the broker and takes part in the controller election; each
of the other modules handles one kind of znode. Imports ``server.workers``.
"""
