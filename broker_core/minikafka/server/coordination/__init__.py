"""The parts that both coordinators, of groups and of transactions, have: the partitions of their topic, its
writes, its reader, and timers.

Imports ``server.core``.
"""
