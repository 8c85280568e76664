"""Formats of keys and values: bytes to columns of Spark's types, and back.

``value_format`` has the port that each format implements, ``bad_values`` what becomes of values that are not
in their format. The options make a query's formats (``options.format_options``); reads decode with them, and
writes encode. Imports nothing of ``options`` and above, and not ``schema``.
"""
