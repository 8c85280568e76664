"""Encoding of Arrow columns to stored bytes, and the memory for both. Imported through ``records.columns``.

Imports ``records.format`` and ``records.kernels``.
"""
