"""Reads: batch queries, streams, and the task that fetches one range.

Imports ``planning``, ``options`` and below.
"""
