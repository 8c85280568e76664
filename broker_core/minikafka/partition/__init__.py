"""One partition on one broker: its role, its high watermark, and who waits for it.

Pure: no clock, thread, socket or registry. ``progress`` (followers) joins this floor with replication.
"""
