"""Fetch requests of clients: the fetch session that all drivers share, ranges of a partition, ListOffsets.

Imports ``clients.network``.

    fetch_state     one partition's position, and the meaning of a response for it
    fetch_session   the partitions of one client, and the requests to their leaders
    range_fetcher   the messages of one partition between two offsets, with prefetch
    shared_fetch    the first messages of several such ranges, by shared requests
    log_sample      the mean size of a log's records, from a look at a few
    read_ranges     the range of a read, from its start to its end: parsed from text, and looked up
    list_offsets    the start and end of logs, and offsets by timestamp
"""
