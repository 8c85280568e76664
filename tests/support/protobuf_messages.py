"""Message types for the tests of protobuf, and messages of them, made by protobuf's own runtime."""

from __future__ import annotations

import random
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from minikafka.records.protobuf import Messages, parse_proto

EVERYTHING = """
syntax = "proto3";  // every kind of field
package test.everything;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";

/* A colour. */
enum Colour {
  option allow_alias = true;
  COLOUR_NONE = 0; RED = 1; CRIMSON = 1; BLUE = -5 [deprecated = true];
}

message Inner {
  int32 a = 1;
  string text = 2;
  repeated sint64 many = 3;
}
message Nothing {}
message Everything {
  double a_double = 1;  float a_float = 2;  int32 an_int32 = 3;  int64 an_int64 = 4;
  uint32 a_uint32 = 5;  uint64 a_uint64 = 6;  sint32 a_sint32 = 7;  sint64 a_sint64 = 8;
  fixed32 a_fixed32 = 9;  fixed64 a_fixed64 = 10;  sfixed32 a_sfixed32 = 11;  sfixed64 a_sfixed64 = 12;
  bool a_bool = 13;  string a_string = 14;  bytes some_bytes = 15;  Colour colour = 16;
  optional int32 optional_int32 = 17;  optional string optional_string = 18;
  Inner inner = 19;  .test.everything.Everything.Deep deep = 20;
  repeated int32 packed = 21;  repeated int32 unpacked = 22 [packed = false];
  repeated double doubles = 23;  repeated string texts = 24;  repeated Inner inners = 25;
  repeated Colour colours = 26;  repeated fixed32 fixed = 27;  repeated bool bools = 28;
  map<string, int64> counts = 29;  map<int32, Inner> by_number = 30;  map<bool, Colour> by_bool = 31;
  oneof choice { int32 one = 32; string other = 33; Inner third = 34; }
  google.protobuf.Timestamp at = 35;  google.protobuf.Duration took = 36;
  repeated google.protobuf.Timestamp times = 37;  google.protobuf.Int64Value wrapped = 38;
  Nothing nothing = 39;  reserved 40 to 45;
  message Deep { Inner inner = 2000; repeated bytes parts = 70000; }
}
service Ignored { rpc Do (Inner) returns (Everything) { option (x).y = "}"; } }
"""

PROTO2 = """
syntax = "proto2";
package test.proto2;
enum Level { LOW = 1; HIGH = 7; }
enum Size { SMALL = 0; LARGE = 1; }
message Old {
  required int32 id = 1;
  optional string name = 2 [default = "no name"];
  optional double weight = 3 [default = -1.5];
  optional Level level = 4 [default = HIGH];
  repeated int32 numbers = 5;
  repeated int32 packed = 6 [packed = true];
  optional bool flag = 7;
}
message Levels {
  repeated Level levels = 1;
  map<string, Size> by_name = 2;
  required string title = 3 [default = "none"];
  oneof choice { Old old = 4; int32 number = 5; }
}
"""


def messages(*texts: str) -> Messages:
    """Return the message types of .proto files, named a.proto, b.proto and so on."""
    files = [parse_proto(text) for text in texts]
    for number, file in enumerate(files):
        file.name = f"{chr(ord('a') + number)}.proto"
    return Messages(files)


def runtime_class(types: Messages, name: str) -> Any:
    """Return the class of a message type in protobuf's runtime."""
    file = types.file_of(name)
    pool = descriptor_pool.DescriptorPool()
    for module in ("timestamp", "duration", "wrappers"):
        imported = __import__(f"google.protobuf.{module}_pb2", fromlist=["DESCRIPTOR"])
        pool.AddSerializedFile(imported.DESCRIPTOR.serialized_pb)
    copied = descriptor_pb2.FileDescriptorProto.FromString(file.SerializeToString())
    pool.AddSerializedFile(copied.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def fill(message: Any, chance: random.Random) -> Any:
    """Give values to some of a message's fields, and return it."""
    for field in message.DESCRIPTOR.fields:
        if chance.random() < 0.35:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            _fill_map(message, field, chance)
        elif field.is_repeated:
            for _ in range(chance.choice([1, 2, 5])):
                if field.message_type is not None:
                    fill(getattr(message, field.name).add(), chance)
                else:
                    getattr(message, field.name).append(_value(field, chance))
        elif field.message_type is not None:
            getattr(message, field.name).SetInParent()
            fill(getattr(message, field.name), chance)
        else:
            setattr(message, field.name, _value(field, chance))
    return message


def _fill_map(message: Any, field: Any, chance: random.Random) -> None:
    key, value = field.message_type.fields
    for _ in range(3):
        entry = getattr(message, field.name)
        if value.message_type is not None:
            fill(entry[_value(key, chance)], chance)
        else:
            entry[_value(key, chance)] = _value(value, chance)


def _value(field: Any, chance: random.Random) -> Any:
    if field.full_name == "google.protobuf.Timestamp.seconds":
        return chance.randint(-(10**10), 10**10)
    if field.full_name in ("google.protobuf.Timestamp.nanos", "google.protobuf.Duration.nanos"):
        return chance.randint(0, 999_999_999)
    if field.full_name == "google.protobuf.Duration.seconds":
        return chance.randint(0, 10**8)
    if field.enum_type is not None:
        return chance.choice(field.enum_type.values).number
    kind = field.type
    bits = {3: 63, 16: 63, 18: 63, 4: 64, 6: 64, 5: 31, 15: 31, 17: 31, 13: 32, 7: 32}
    if kind in bits:
        top = (1 << chance.randint(0, bits[kind])) - 1
        return chance.randint(0 if bits[kind] in (32, 64) else -top - 1, top)
    if kind == 2:
        return float(chance.choice([0.0, 1.5, -2.25, 1e10]))
    if kind == 1:
        return chance.choice([0.0, chance.random(), -chance.random() * 1e300])
    if kind == 8:
        return chance.random() < 0.5
    if kind == 9:
        return chance.choice(["", "a", "größer", "x" * 200])
    return chance.choice([b"", b"\x00\xff", bytes(300)])
