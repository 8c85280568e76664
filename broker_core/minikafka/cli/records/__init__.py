"""Records at the command line: ``input`` parses those that ``produce`` sends; ``partition_reader``,
``group_reader`` and ``zookeeper_group_reader`` read those that ``consume`` prints, ``output`` prints them,
and ``format`` prints them by a format string.

Imports ``cli.connection``, ``cli.terminal``, ``clients`` and ``records``. Exports what those commands use,
which import readers and ``format`` only when they run.
"""
