"""SASL mechanisms as state machines, both sides of each: bytes in, bytes or ``AuthenticationFailed`` out.

    mechanism         the two sides of any mechanism, after Java's SaslClient and SaslServer
    plain             PLAIN (RFC 4616)
    scram             SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), and the credentials of users
    oauthbearer       OAUTHBEARER (RFC 7628)
    server_states     the states of a connection, from its first request to an authenticated client
    client_states     the same at the other end: the requests of a client until it is authenticated
    unsecured_tokens  tokens for it without a signature, for development

Imports only ``base``.
"""
