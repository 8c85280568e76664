"""Transactions: their states in the coordinator, and the storage of these.

Pure: no clock, thread, socket or registry. ``states`` is the table of states, ``metadata`` is the transaction
of one id, ``messages`` is its format in ``__transaction_state``, ``decisions`` are the results of requests,
``shard`` has all transactions of one partition of that topic, and ``loading`` loads them from the log. It
imports ``wire`` and ``base``.
"""
