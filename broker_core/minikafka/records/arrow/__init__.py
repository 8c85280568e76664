"""The columns of decoded messages, the encoding of columns to stored bytes, and the memory for both. Imported
through ``records.columns``.

Imports ``records.format`` and ``records.kernels``.
"""
