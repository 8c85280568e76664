"""Bytes between machines: the broker's server, the clients' connections, and both once more in memory.

``port``        what the floors above see: Exchange and RequestHandler, Connection and Connector
``server``      one acceptor thread a listener and N processor threads over real sockets
``limits``      how many connections there may be; ``backlog``: how many requests, before nothing more is read
``connection``  a blocking, pipelined connection for clients and brokers
``memory``      the same two sides without sockets, threads or time: deterministic, with faults
``probe``       small questions to ports: is one free, does one answer, which mode is that ZooKeeper in

These are the only sockets of the project, beside the ZooKeeper client's. What lies between are frames
(``minikafka.wire.framing``): this floor adds and removes their length, and does not look into them.
"""
