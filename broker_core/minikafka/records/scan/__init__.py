"""Scans of stored records: recovery, look-ups by offset and time, aborted transactions.

Imports ``records.format`` and ``records.kernels``.
"""
