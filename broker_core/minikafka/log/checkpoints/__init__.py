"""The small files beside the logs: recovery points, high watermarks, leader epochs, topics, broker.

``data_directory`` owns the files of one data directory. Imports ``log.layout`` and ``base``.
"""
