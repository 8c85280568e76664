"""A small Scala program that reads and writes through the shim: ``Delays.scala``."""
