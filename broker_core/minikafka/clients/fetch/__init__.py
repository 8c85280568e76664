"""Fetch requests of clients: responses, ranges of a partition, offsets by time, isolation levels.

Imports ``clients.network``.
"""
