"""Kafka's wire protocol as bytes and values: no socket, no thread, no clock.

``schema``   what a message looks like, as a table, compiled once per version
``apis``     one module per API with all its versions side by side; whoever asks one imports that one
``table``    all of them by their keys, for who answers or prints them
``framing``  the length before every message and the headers behind it
``classic``  the texts' compact protocol: requests of Kafka 0.7, answered by MessageSetSend
``consumer_protocol``  what the members of a group of consumers tell each other
``parts``    what a message is made of on its way out: memory, and slices of files that nobody has read

``python -m minikafka.wire`` prints every API, version and field that is spoken here.
"""
