"""The lag of a streaming query, shown by a consumer group's tool."""
