"""Protobuf messages in bulk: a column of bytes to a column of structs, and back.

    types      a message's fields, as its descriptor says, and their Arrow types
    decoding   bytes to columns, level by level, by ``kernels.protobuf``
    encoding   columns to bytes, field by field

Descriptors are read elsewhere: nothing here needs protobuf's runtime. Spark's source imports this package,
and none of its modules.
"""

from minikafka.records.protobuf.decoding import DecodedMessages, decode_messages
from minikafka.records.protobuf.encoding import encode_messages, fields_of_columns
from minikafka.records.protobuf.types import EnumType, Field, Message, ProtobufError

__all__ = [
    "DecodedMessages",
    "EnumType",
    "Field",
    "Message",
    "ProtobufError",
    "decode_messages",
    "encode_messages",
    "fields_of_columns",
]
