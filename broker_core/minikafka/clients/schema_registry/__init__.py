"""The client of a schema registry with Confluent's REST interface.

    config    its settings, with the names of Confluent's clients
    client    schemas by id, registration and look-up, with caches

The questions of a ``SchemaRegistryClient``::

    client.schema(id) -> RegisteredSchema          the schema that a record names, cached for ever
    client.latest(subject) -> RegisteredSchema     the newest version of a subject
    client.versions(subject) -> (number, schema)…  all of them, the newest first
    client.register(subject, schema) -> id         a version of a subject, made if it is new
    client.look_up(subject, schema) -> id          the same, without making one
    client.version(subject, schema) -> number      the version that ``look_up`` finds
"""
