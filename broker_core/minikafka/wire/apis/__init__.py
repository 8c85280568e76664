"""The APIs of the protocol, one module each: its request, its response, and the tables of both."""
