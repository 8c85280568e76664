"""Threads for slow work: jobs of the control path, one after the other, and a pool for large requests.

Each has an inline twin, which tests step. Imports ``base``.
"""
