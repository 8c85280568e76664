"""The lowest package: errors, ids, clock, binary primitives and the filesystem port."""

__version__ = "0.1.0.dev0"
