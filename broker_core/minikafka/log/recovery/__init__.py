"""Open a partition's directory after a clean or an unclean stop, and replace segments safely.

Imports ``log.segment`` and below, ``log.checkpoints`` and ``log.producers``.
"""
