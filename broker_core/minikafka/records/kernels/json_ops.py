"""The tables of the JSON kernel: the nodes of a schema, and the fields of its structs.

A node is NODE_WORDS numbers. ``values`` has the table of the columns' addresses, and says what a counter
counts.

    KIND       see below
    COLUMN     the place of the column's addresses
    DOMAIN     the counter whose value is the number of the item
    COUNTER    the counter of a text's bytes, or of the items of a list or map
    FIRST      a struct's first field, the node of an element or of a map's values, a decimal's scale
    COUNT      a struct's fields, an integer's bytes, a decimal's digits
    KEYS       the place of the column of a map's keys, and the counter of their bytes
    NULLS      the nodes that are null with this one, itself included: their place and number in their table

A field is FIELD_WORDS numbers: the place and size of its name in the constants, and its node.
"""

from __future__ import annotations

NODE_WORDS = 10
KIND = 0
COLUMN = 1
DOMAIN = 2
COUNTER = 3
FIRST = 4
COUNT = 5
KEYS = 6
KEYS_COUNTER = 7
NULLS = 8
NULL_COUNT = 9

FIELD_WORDS = 3
NAME_AT = 0
NAME_SIZE = 1
NODE = 2

STRUCT = 0
LIST = 1
MAP = 2
STRING = 3
INTEGER = 4
FLOAT = 5
DOUBLE = 6
BOOLEAN = 7
DATE = 8
TIMESTAMP = 9  # without a zone, it is one of UTC
LOCAL_TIMESTAMP = 10  # a zone is refused
DECIMAL = 11
OTHER = 12  # only null is read

# Results of a value. FULL: a counter has reached its limit. REFUSED: another reader must decide.
GOOD = 0
FULL = 1
REFUSED = 2

# Places in ``state``.
NEXT_ROW = 0
VALUES_AT = 1  # addresses
NAMES_AT = 2
VALID_SHIFT = 3
FULL_COUNTER = 4  # why the kernel stopped, and the limit that it needs
WANTED = 5
DEPTH = 6  # in the stack, while a value is read
STAMP = 7  # of the last struct that was begun
DIGITS = 8  # of the number that was read: its digits as an integer, the exponent of ten, the sign
EXPONENT = 9
NEGATIVE = 10
IS_WHOLE = 11  # it has neither a fraction nor an exponent
REFUSED_ROW = 12  # a row that is too large; -1 for none
SCRATCH_AT = 13  # the address of 8 bytes
IS_EMPTY = 14  # the object or array that ends has no items
STATE_SIZE = 15
