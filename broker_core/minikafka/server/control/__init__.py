"""The controller's effects: decisions of ``minikafka.controller`` written to ZooKeeper and sent to brokers.

``controller_event_manager`` is active on the elected controller; ``controller_channel`` sends its requests
in order; ``controlled_shutdown`` moves leadership away before a broker stops. Imports
``server.replication`` and below.
"""
