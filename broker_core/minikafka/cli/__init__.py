"""The command line: a module for each noun, and the options that they share.

``main`` is the entry point, and ``commands`` assembles the commands. A part of a noun that has a module of
its own is named for both (``group_reset``, ``topic_rows``). Folders have what several commands use, and know
no command; each may import those after it, and ``options``:

    records       the records that ``produce`` and ``consume`` parse, read and print
    connection    the cluster that options, files, profiles and the environment name, and clients of it
    terminal      results, notes, progress and signals

Only this package imports typer and rich.
"""
