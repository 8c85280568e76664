"""Message sets: their bytes, what a broker checks and writes in them, and their way to Arrow and back.

    message_set   formats of magic 0 and 1, enums, builder and iterator for small uses (one Python object per
                  message)
    validation    what a broker does with a produced set: validate, then assign offsets
    scan          recovery of a segment, search by offset or timestamp
    conversion    magic 1 to magic 0 for old fetchers
    columns       bytes to Arrow, Arrow to bytes (the only module here that imports pyarrow)
    compression   gzip, snappy and lz4 as Kafka frames them
    checksums     tables of CRC-32;  hashes: Java's murmur2
    kernels       the loops over bytes, compiled by numba at first use

Formats are told apart by the magic byte, which lies at position 16 of every entry of every format.
"""
