"""The ground floor: errors, ids, clock, binary primitives and the filesystem port."""
