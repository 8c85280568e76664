"""Appending of records to a log: validate a produce request, assign offsets, copy from a leader.

    batch_fast_path   plain batches of magic 2, the content of nearly every request
    validation        every other request: validate, then assign offsets
    conversion        sets in another format than that of their topic
    content_opener    compressed content, within a budget or in steps
    replicated        records with offsets from a leader

Imports ``records.format``, ``records.scan`` and ``records.kernels``.
"""
