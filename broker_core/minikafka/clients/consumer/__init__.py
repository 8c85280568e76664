"""The high-level consumer: a group that shares partitions out through ZooKeeper, as Kafka's consumers of
0.8 to 0.10 do. One class to a file; the names are those of the reference texts in Python's spelling.
"""
