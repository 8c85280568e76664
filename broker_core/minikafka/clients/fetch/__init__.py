"""Fetch requests of clients: responses, ranges of a partition, ListOffsets, isolation levels.

Imports ``clients.network``.
"""
