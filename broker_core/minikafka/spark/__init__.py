"""Names of the Spark source under ``minikafka``, for programs that import all from one place.

The only package here that imports the Spark source and PySpark; no other imports it. Importing it without
PySpark raises ImportError.
"""
