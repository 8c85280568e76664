"""The two sparse indexes of a segment, in Kafka's file formats: by offset and by time.

Imports ``base``.
"""
