"""The broker: it turns requests, ZooKeeper changes and timers into events for the core, and its decisions
into responses and writes.

Threads: one acceptor and N processors (``net``), the worker ``registrar`` (ZooKeeper, and other slow work of
the control path), the housekeeper (deadlines, flushes, checkpoints). All broker state is changed under the
core's one lock; see ``minikafka.server.core.broker``.
"""
