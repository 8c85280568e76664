"""Byte rates of clients and of replication, and how long the one above its limit is paused.

Imports ``base``.
"""
