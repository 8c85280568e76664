"""A command's way to its cluster: ``connect`` opens clients of brokers and ZooKeeper by the options of a
command, ``command_config`` reads files of client properties, and ``profiles`` keeps such files by name.

Imports ``cli.options``, ``cli.terminal``, ``clients``, ``registry`` and ``embedded``; ``connect`` imports the
last three only in functions, as all commands import it. Exports context managers that close what they open.
"""
