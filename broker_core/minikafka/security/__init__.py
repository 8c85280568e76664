"""Authentication without sockets: principals, and what configurations and certificates say of them.

    authorizer     the decisions of ACLs
    certificates   names and validity of certificates; ``der``: their encoding
    cipher_suites  names of cipher suites
    jaas           the text of ``sasl.jaas.config``
    principals     the principal of a client, and ``ssl.principal.mapping.rules``
    sasl           mechanisms, both sides
    ssl_config     the settings ``ssl.…``
    stores         key stores and trust stores

Everything here is a value or a state machine: bytes go in, bytes and a verdict come out. Clocks, random
bytes, passwords and keys are passed in. No listener and no client authenticates yet: the principals of ACLs
are the only part that is in use.

Imports only ``base``.
"""
