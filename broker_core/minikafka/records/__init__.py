"""Message sets: their bytes, their validation by a broker, and conversion to Arrow and back.

    record        a record as callers see it, whatever the format
    message_set   formats of magic 0 and 1, builder and iterator for small uses (a Python object per message)
    batch         the same for magic 2
    validation    a produced set in a broker: validate, then assign offsets
    scan          recovery of a segment, search by offset or timestamp
    stream        a set in memory or in a file: an iterator with bulk reading and writing to a channel
    conversion    newer formats to older ones for old fetchers, and produced sets to the format of their topic
    columns       bytes to Arrow, Arrow to bytes (with encoding and headers all that imports pyarrow)
    avro          Avro values to columns and back (imports pyarrow);  json: JSON values to columns
    compression   gzip, snappy, lz4 and zstd as Kafka frames them
    checksums     CRC-32 and CRC-32C;  hashes: Java's murmur2
    kernels       the loops over bytes, compiled by numba at first use

The magic byte identifies the format. It is at position 16 of every entry of every format.
"""
