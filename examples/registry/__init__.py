"""Streams of Avro whose schemas are in a registry, and a second version of a schema."""
