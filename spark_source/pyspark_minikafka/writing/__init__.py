"""Writes: batch and streaming sinks, and the task that sends record batches.

Imports ``options`` and below.
"""
