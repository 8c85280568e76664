"""The controller's decisions: which replica leads which partition, and what becomes of a topic.

Pure: events in, effects out. ``server`` turns ZooKeeper's watches into events and effects into writes and
messages.
"""
