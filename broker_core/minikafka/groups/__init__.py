"""Groups of consumers and their offsets: who is in a group, what it has committed, how both are stored.

Pure: no clock, thread, socket or registry. ``group`` is the state machine of one group, ``offsets`` what one
group has committed, ``messages`` how both stand in ``__consumer_offsets``, ``shard`` all groups of one
partition of that topic, and ``loading`` how it comes back from the log.
"""
