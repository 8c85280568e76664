"""The command line: a module for each noun, and their shared options, output, progress and connections.

``main`` is the entry point; ``commands`` assembles the commands. Only this package imports typer and rich.
"""
