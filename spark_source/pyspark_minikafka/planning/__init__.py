"""The plan of a read, on the driver: from options to ranges of offsets, one for each task.

``planner`` decides, and asks the cluster through ``lookup`` alone; the other modules are pure. Imports
``options`` and below.
"""
