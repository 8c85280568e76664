"""The controller: it elects leaders, assigns and reassigns replicas, and creates and deletes topics.

Pure: events in, effects out. ``server`` turns ZooKeeper's watches into events, and effects into writes and
requests. Imports ``partition.replica`` and ``base``.
"""
