"""Programs of the Avro kernels: their instructions, and the codes of values that they refuse.

``records.avro`` compiles a schema to a program, which a kernel runs once for each value. An instruction is
WORDS numbers. ``values`` has the table of the columns' addresses, and says what a counter counts.

    OP         what to do
    COLUMN     the place of the column's addresses in their table
    DOMAIN     the counter whose value is the number of the item to read or write
    COUNTER    the counter of the column's bytes, or of an array's items
    A, B, C    see the instruction
"""

from __future__ import annotations

WORDS = 8

OP = 0
COLUMN = 1
DOMAIN = 2
COUNTER = 3
A = 4
B = 5
C = 6

END = 0  # of the value
JUMP = 1  # to A

# Reading. First the instructions that begin with a varint of B bits.
SKIP_NUMBER = 2
TO_I32 = 3
TO_I64 = 4  # times A
TO_F32 = 5
TO_F64 = 6
BRANCH = 7  # of A branches: go to table[C + number]
ENUM = 8  # of A symbols: its address in the constants and its size are at table[C + 2 * number]
TO_BYTES = 9
TO_STRING = 10  # UTF-8
TO_DECIMAL = 11  # below the limit of 128 bits at table[C], the high half first
SKIP_BYTES = 12
LAST_NUMBER = SKIP_BYTES
# Instructions that take A bytes.
SKIP_FIXED = 13
TO_FIXED = 14
COPY_4 = 15
COPY_8 = 16
TO_BOOLEAN = 17
FLOAT_TO_DOUBLE = 18
FIXED_TO_DECIMAL = 19  # as TO_DECIMAL
LAST_FIXED = FIXED_TO_DECIMAL
# Instructions that take no bytes, except for ITEM, which reads the head of the next block.
VALID = 20
NULL = 21  # the item has A bytes
NULL_ENDS = 22  # the column has offsets
ARRAY = 23  # begin; go to the ITEM at A
ITEM = 24  # end an item, of at least A bytes; the first instruction of an item is at B
DEFAULT = 25  # read from A to B of the constants
DEFAULT_END = 26
UNRESOLVABLE = 27  # the branch or symbol has no counterpart in the reader's schema

# Writing. First the instructions that write at most MARGIN bytes.
REQUIRE = 30  # the item must not be null
IF_NULL = 31  # go to A
FROM_I32 = 32
FROM_I64 = 33  # divided by A
FROM_4 = 34
FROM_8 = 35
FROM_BOOLEAN = 36
FROM_ENUM = 37  # of A symbols, as ENUM
FROM_DECIMAL = 38
FROM_ARRAY = 39  # begin; go on at A if there are no items
ITEM_END = 40  # the first instruction of an item is at A
NO_MEMBER = 41  # all members of a union are null
# Instructions that write more.
CONSTANT = 50  # from A to B of the constants
FROM_BYTES = 51
FROM_FIXED = 52  # of A bytes
FROM_DECIMAL_FIXED = 53  # of A bytes
MARGIN = 32

# Results of a value. FULL: a counter has reached its limit, or the output is full.
GOOD = 0
FULL = 1
TRUNCATED = 2
BAD_NUMBER = 3
BAD_BRANCH = 4
UNRESOLVED = 5
BAD_LENGTH = 6
BAD_COUNT = 7
BAD_BOOLEAN = 8
BAD_TEXT = 9
BAD_DECIMAL = 10
OUT_OF_RANGE = 11
TRAILING = 12
TOO_LARGE = 13
NULL_ITEM = 14
BAD_SYMBOL = 15
BAD_SIZE = 16
ALL_NULL = 17
RESULT_BITS = 8

EMPTY_ITEMS_MAX = 1024
"""The most items in an array whose items take no bytes (null, a record without fields): the size of the value
limits all others.
"""
