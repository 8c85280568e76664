"""The state of the idempotent and transactional producers of one log, and its snapshot files.

Imports ``log.file_scan`` and ``records``.
"""
