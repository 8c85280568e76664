"""Consumer groups: their members, their committed offsets, and the storage of both.

Pure: no clock, thread, socket or registry. ``group`` is the state machine of one group, ``members`` are its
members, ``offsets`` are the committed offsets of one group, ``messages`` is their format in
``__consumer_offsets``, ``shard`` has all groups of one partition of that topic, and ``loading`` loads them
from the log.
"""
