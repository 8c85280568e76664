"""One partition on one broker: its role, its high watermark, and the delayed requests on it.

    partition   the partition as leader or as follower
    replica     leader and ISR of a partition, and the progress of its followers
    purgatory   delayed requests

Pure: no clock, thread, socket or registry. Imports ``log``, ``records`` and ``base``.
"""
