"""The effects of the transaction coordinator around ``minikafka.transactions``, and a leader's part in them.

``transaction_marker_sender`` brings the markers of ended transactions to the leaders of their partitions;
``marker_writer`` appends them there. Imports ``server.groups``, ``server.coordination`` and ``server.core``.
"""
