"""Key stores and trust stores, from bytes: which format they have, and what is in them.

    formats   PEM, PKCS12 or JKS, by the first bytes
    jks       the JKS format, Java's own

Imports only ``base``.
"""
