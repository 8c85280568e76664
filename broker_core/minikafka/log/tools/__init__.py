"""Read and verify log files without a broker: ``minikafka log dump`` and ``minikafka log verify``.

Nothing is written. Imports ``log`` and ``records``.
"""
