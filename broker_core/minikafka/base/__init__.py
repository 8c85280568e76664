"""The lowest package: errors, ids, clock, binary primitives and the filesystem port."""
