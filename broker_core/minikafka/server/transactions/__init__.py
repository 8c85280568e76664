"""The transaction coordinator: requests, timers and the log of ``__transaction_state`` around
``minikafka.transactions``; and a leader's part in transactions.

``transaction_marker_sender`` brings the markers of ended transactions to the leaders of their partitions;
``marker_writer`` appends them there. ``add_partitions_verifier`` asks coordinators before the first batch of
a transaction is appended. Imports ``server.groups``, ``server.coordination``, ``server.core``,
``server.admin`` and ``server.workers``.
"""
