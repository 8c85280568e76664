"""What speaks to brokers from outside: the cluster's view, administration, producer, fetcher, groups."""
