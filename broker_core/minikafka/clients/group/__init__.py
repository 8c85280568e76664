"""The consumer in a group that a broker coordinates: ``GroupConsumer`` and its parts.

    consumer             poll, seek, commit
    member, membership   the protocol of joining, as decisions (``membership``) and as requests (``member``)
    coordinator_client   finds the broker that coordinates a group
    subscription_state   position of each assigned partition
    fetcher, fetch_buffer, rows   records on their way from a response to the application
    sole_member          reads partitions of its own choice and commits for the group
    admin                lists, describes, resets and deletes groups

Imports ``clients.fetch`` and ``clients.network``.
"""
