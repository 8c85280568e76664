"""Workers: the threads for slow work, apart from the processors and the core's lock.

``worker`` runs the jobs of the control path in order; ``request_jobs`` lets clients' requests to ZooKeeper
take turns on it; ``work_pool`` runs long requests in steps. Each has an inline variant for tests. A folder of
its own, since every other package of the server submits jobs. Imports ``base`` and ``net``.
"""
