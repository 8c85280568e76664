"""The command line: one module a noun, and what they share (options, output, progress, connections).

``main`` starts; ``commands`` loads the module of the command that was given, and no other. Only this
package knows typer and rich.
"""
