"""Protobuf messages in bulk: a column of bytes to a column of structs, and back.

    types        a message's fields, as its descriptor says, and their Arrow types
    decoding     bytes to columns, level by level, by ``kernels.protobuf``
    encoding     columns to bytes, field by field
    descriptors  files of descriptors to types, by protobuf's runtime (the extra ``protobuf``), which nothing
                 else here needs
    proto_file   the text of a .proto file as a descriptor

Spark's source imports this package, and none of its modules.
"""

from minikafka.records.protobuf.decoding import DecodedMessages, decode_messages
from minikafka.records.protobuf.descriptors import (
    FIRST_MESSAGE,
    INDEXES_MAX,
    Messages,
    MissingProtobuf,
    check_installed,
    files_of,
    files_of_set,
    files_of_texts,
    message_indexes,
    read_indexes,
    schema_text,
)
from minikafka.records.protobuf.encoding import encode_messages, fields_of_columns
from minikafka.records.protobuf.proto_file import parse_proto
from minikafka.records.protobuf.types import EnumType, Field, Message, ProtobufError

__all__ = [
    "FIRST_MESSAGE",
    "INDEXES_MAX",
    "DecodedMessages",
    "EnumType",
    "Field",
    "Message",
    "Messages",
    "MissingProtobuf",
    "ProtobufError",
    "check_installed",
    "decode_messages",
    "encode_messages",
    "fields_of_columns",
    "files_of",
    "files_of_set",
    "files_of_texts",
    "message_indexes",
    "parse_proto",
    "read_indexes",
    "schema_text",
]
