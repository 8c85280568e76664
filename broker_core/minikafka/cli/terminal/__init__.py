"""The terminal of a command: ``output`` prints results and notes, ``progress`` draws bars and spinners, and
``signals`` ends a command at Ctrl-C or SIGTERM.

Imports ``base`` and ``cli.options``; rich only for a bar that is drawn. Exports functions and classes for all
commands.
"""
