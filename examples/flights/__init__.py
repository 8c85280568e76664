"""All flights that left New York in 2013, through the log and Spark. See ``main``."""
