"""The way of records into a log: validate a produce request, assign offsets, copy from a leader.

    batch_fast_path   plain batches of magic 2, which nearly every request holds
    validation        every other request: validate, then assign offsets
    conversion        another format than the topic stores
    content_opener    compressed content, within a budget and in steps
    replicated        records that a leader has numbered

Imports ``records.format``, ``records.scan`` and ``records.kernels``.
"""
