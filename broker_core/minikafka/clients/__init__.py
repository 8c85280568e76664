"""What speaks to brokers from outside: the cluster's view, administration, the fetcher, the producer."""
