"""SASL mechanisms as state machines, both sides of each: bytes in, bytes or ``AuthenticationFailed`` out.

    mechanism         the two sides of any mechanism, after Java's SaslClient and SaslServer
    plain             PLAIN (RFC 4616)
    scram             SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), and the credentials of users
    oauthbearer       OAUTHBEARER (RFC 7628)
    server_states     the states of a connection, from its first request to an authenticated client
    client_states     the same at the other end: the requests of a client until it is authenticated
    unsecured_tokens  tokens for it without a signature, for development
    signed_tokens     tokens for it with a signature, as a broker validates them
    token_claims      the parts and claims of any token
    aws_msk_iam       AWS_MSK_IAM, and Amazon's tokens for OAUTHBEARER
    gssapi            GSSAPI (RFC 4752)
    sasl_config       the settings of a client
    login             these settings, turned into the client's side of exchanges
    oidc              tokens of an identity provider

Imports only ``base``.
"""
