"""Java's regular expressions for Python's ``re``: topics are chosen by patterns that Java programs share.

Imports nothing of the project but errors.
"""
