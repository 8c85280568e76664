"""The log of a partition, and all logs of a broker.

    log            one partition: a list of segments, of which the last is appended to
    segment        one segment file and its indexes
    manager        all logs, in one or more data directories
    reading        the result of a read: a slice of a file
    search         segments and offsets by time
    transactions   the aborted transactions of a read
    config         topic properties over the broker's
    layout         names of directories and files
    file_scan      one pass over a segment file
    retention      policies that choose the segments to delete

The folders hold what belongs to a log: ``index``, ``recovery``, ``checkpoints``, ``producers``, ``cleanup``,
``tools``. Nothing here reads a clock, starts a thread or opens a socket: time is an argument. Imports
``records`` and ``base``.
"""
