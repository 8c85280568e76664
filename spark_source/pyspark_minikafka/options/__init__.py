"""The options of a query, parsed once: those of Spark's Kafka connector, ``kafka.*`` and our own.

``bounds`` has the start and the end of a query. Imports ``checkpoint``, ``offsets`` and ``strategy``.
"""
