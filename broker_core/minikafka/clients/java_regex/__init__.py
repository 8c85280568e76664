"""Java's regular expressions for Python's ``re``: topic patterns are shared with Java programs.

Imports nothing of the project.
"""
