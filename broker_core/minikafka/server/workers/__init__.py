"""Workers: the threads for slow work, apart from the processors and the core's lock.

``worker`` runs the jobs of the control path in order; ``request_jobs`` lets clients' requests to ZooKeeper
take turns on it; ``work_pool`` runs long requests in steps, and ``request_admission`` bounds the memory that
they hold together. Worker and pool have inline variants for tests. A folder of its own, since every other
package of the server submits jobs. Imports ``base``, ``wire`` and ``net``.
"""
