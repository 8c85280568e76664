"""Quotas of clients, addresses and replication, and the pauses of those above their limit.

Imports ``server.config``.
"""
