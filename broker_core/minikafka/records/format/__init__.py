"""The bytes of records: message sets of magic 0 and 1, record batches of magic 2.

Headers, compression and checksums are here too. ``message_set`` and ``batch`` build and iterate with a
Python object per message, for small uses. Bulk paths use ``records.kernels`` through ``records.columns``.
``hashes`` has Java's hashes, which choose partitions. Imports ``base`` and ``records.kernels``.
"""
