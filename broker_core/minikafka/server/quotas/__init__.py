"""Byte-rate quotas of clients and of replication, and the pauses of those above their limit.

Imports ``base``.
"""
