"""Network: the broker's socket server, the clients' connections, and both in memory for simulations.

    interfaces         the interfaces for the packages above: Exchange, RequestHandler, Connection, Connector
    server             a SocketServer: one acceptor thread per listener and N processor threads
    exchange           one request of a connection, and its response
    channel            a connection of the server: its states, and what may follow each
    handshake          the server's side of TLS handshakes
    ssl_transport      TLS in the place of a socket, for both sides
    connection_quotas  limits on connections, and on the lines that anybody's connections cause in the log
    request_limiter    limits on requests; ``response_memory``: on responses
    connection         a blocking, pipelined connection for clients and brokers
    listener_probe     whether a listener that closes connections uses TLS and its client does not, or reverse
    authentication     such connections on which the client has logged in with SASL
    sasl_probe         whether a listener that closes connections demands a login
    memory             the same interfaces without sockets, threads or time: deterministic, with faults
    login_ports        the effects of logins: identity providers, the libraries of AWS and Kerberos
    token_cache        the token of a client, kept and renewed
    key_cache          the keys of an identity provider, kept and fetched again
    http               requests to identity providers
    tls                contexts of OpenSSL from the settings; ``tls_failures``: causes of failed handshakes
    ports              free TCP ports, reachability checks, and the mode of a ZooKeeper server

The project opens sockets only here and in the ZooKeeper client. Frames (``minikafka.wire.framing``) are
opaque here: this package adds and removes their length, and reads their content only to log in.
"""
