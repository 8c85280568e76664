"""Network: the broker's socket server, the clients' connections, and both in memory for simulations.

``interfaces``         what the packages above see: Exchange and RequestHandler, Connection and Connector
``server``             a SocketServer: one acceptor thread per listener and N processor threads
``connection_quotas``  limits on connections; ``request_limiter``: on requests; ``response_memory``: on
responses ``connection``         a blocking, pipelined connection for clients and brokers ``memory``
the same interfaces without sockets, threads or time: deterministic, with faults ``ports``              free
TCP ports, reachability checks, and the mode of a ZooKeeper server

These are the only sockets of the project, beside the ZooKeeper client's. Frames (``minikafka.wire.framing``)
are opaque here: this package adds and removes their length, and does not read their content.
"""
