"""Everything that the broker reads, watches and writes in ZooKeeper.

``zookeeper_client`` keeps the session, registers the broker and takes part in the controller's election;
the other modules are the znodes that it looks after, one noun each. Imports ``server.workers``.
"""
