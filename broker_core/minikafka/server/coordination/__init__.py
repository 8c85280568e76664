"""The parts that both coordinators, of groups and of transactions, have: writes to their topic, and timers.

Imports ``server.core``.
"""
