"""The indexes of a segment, in Kafka's file formats: by offset, by time, and of aborted transactions.

Imports ``base``.
"""
