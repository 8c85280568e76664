"""Descriptors of protobuf as message types, and the text of .proto files as descriptors."""

from __future__ import annotations

import pickle

import pytest
from google.protobuf import descriptor_pb2

from minikafka.records.protobuf import (
    Messages,
    ProtobufError,
    files_of_set,
    files_of_texts,
    message_indexes,
    parse_proto,
    schema_text,
)
from tests.support.protobuf_messages import EVERYTHING, PROTO2, messages

HEAD = 'syntax = "proto3"; package p; '


def test_fields_have_what_the_file_says() -> None:
    found = messages(EVERYTHING).message("test.everything.Everything")
    fields = {field.name: field for field in found.fields}
    assert fields["an_int32"].has_presence is False
    assert fields["optional_int32"].has_presence is True
    assert (fields["packed"].is_packed, fields["unpacked"].is_packed) == (True, False)
    assert {fields[name].oneof for name in ("one", "other", "third")} == {0}
    assert fields["counts"].is_map
    assert found.names[:2] == ("a_double", "a_float")
    colour = fields["colour"].enum
    assert colour is not None
    assert (colour.numbers, colour.names) == ((-5, 0, 1), ("BLUE", "COLOUR_NONE", "RED"))


def test_message_without_fields_has_no_column() -> None:
    found = messages(EVERYTHING).message("test.everything.Everything")
    assert "nothing" not in {field.name for field in found.columns}


def test_defaults_and_labels_of_proto2_are_read() -> None:
    fields = {field.name: field for field in messages(PROTO2).message("test.proto2.Old").fields}
    assert fields["id"].is_required
    assert [fields[name].default for name in ("name", "weight", "level", "flag")] == [
        "no name", -1.5, "HIGH", None
    ]  # fmt: skip
    assert fields["level"].enum is not None
    assert fields["level"].enum.is_closed


def test_types_are_values() -> None:
    found = messages(EVERYTHING).message("test.everything.Everything")
    assert pickle.loads(pickle.dumps(found)) == found


def test_descriptor_set_has_its_messages() -> None:
    file = parse_proto(EVERYTHING)
    file.name = "everything.proto"
    content = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    names = Messages(files_of_set(content)).names()
    assert names == [
        "test.everything.Inner",
        "test.everything.Nothing",
        "test.everything.Everything",
        "test.everything.Everything.Deep",
    ]


@pytest.mark.parametrize("content", [b"", b"syntax = 'proto3';", b"\xff\xff"])
def test_other_files_are_no_descriptor_sets(content: bytes) -> None:
    with pytest.raises(ProtobufError, match="is no descriptor set with a message: make it with protoc"):
        files_of_set(content)


@pytest.mark.parametrize(
    "form", [str, lambda text: schema_text(parse_proto(text))], ids=["text", "descriptor"]
)
def test_schema_of_a_registry_finds_its_references(form: object) -> None:
    assert callable(form)
    inner = form(HEAD + "message Inner { int32 a = 1; }")
    outer = form(HEAD + 'import "inner.proto"; message Outer { Inner inner = 1; p.Inner other = 2; }')
    found = Messages(files_of_texts("outer.proto", outer, [("inner.proto", inner)])).message("p.Outer")
    assert str(found.arrow_type) == "struct<inner: struct<a: int32>, other: struct<a: int32>>"


def test_messages_have_the_indexes_of_confluents_serializers() -> None:
    file = parse_proto(
        HEAD + "message A { map<string, int32> m = 1; message B {} message C { message D {} } } message E {}"
    )
    assert message_indexes(file) == {
        (0,): "p.A", (0, 0): "p.A.B", (0, 1): "p.A.C", (0, 1, 0): "p.A.C.D", (1,): "p.E"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("message A { B b = 1; } message B { A a = 1; }", r"contains itself \(p.A -> p.B -> p.A\)"),
        ("message A { repeated A a = 1; }", r"contains itself \(p.A -> p.A\)"),
        ("message A { Missing a = 1; }", "is not valid"),
        ("message A { int32 a = 1; int32 b = 1; }", "is not valid"),
        ('import "other.proto"; message A {}', "other.proto is missing: make the descriptor set with protoc"),
        ('import "a.proto"; message A {}', "a.proto imports itself"),
        ("message B {}", "there is no message p.A; the messages are p.B"),
    ],
)
def test_message_that_cannot_be_read_says_why(body: str, reason: str) -> None:
    with pytest.raises(ProtobufError, match=reason):
        messages(HEAD + body).message("p.A")


def test_types_that_multiply_are_refused() -> None:
    doubled = " ".join(f"message M{n} {{ M{n + 1} a = 1; M{n + 1} b = 2; }}" for n in range(20))
    with pytest.raises(ProtobufError, match="has more than 10000 fields"):
        messages(HEAD + doubled + " message M20 { int32 a = 1; }").message("p.M0")


def test_imports_that_define_only_options_are_left_out() -> None:
    text = (
        HEAD + 'import "confluent/meta.proto"; message A { int32 a = 1 [(confluent.field_meta) = {x: "}"}]; }'
    )
    assert len(messages(text).message("p.A").fields) == 1


def test_words_of_the_language_may_be_names_of_fields() -> None:
    found = parse_proto(HEAD + "message A { int32 message = 1; optional.x optional = 2; int32 group = 3; }")
    assert [field.name for field in found.message_type[0].field] == ["message", "optional", "group"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("message A {\n int32 a = x; }", "line 2: expected a number, found 'x'"),
        ("message A { int32 a = 1 }", "line 1: expected ';', found '}'"),
        ("message A {", "line 1: the file ends too early"),
        ("message A { enum", "line 1: the file ends too early"),
        ("message A { int32 a = 99999999999; }", "line 1: the number 99999999999 is too large"),
        ("message A {} enum E { A = -2147483649; }", "line 1: the number 2147483649 is too large"),
        ("message A { ~ }", "unexpected '~'"),
        ('edition = "2023";', "editions are read only from descriptors"),
        ("message A { repeated group G = 1 {} }", "groups are not supported"),
        ("Avro", "unexpected 'Avro'"),
        ('{"type": "record"}', "unexpected '{'"),
        ("", "there is no message"),
        ("message A {" * 200, "more than 100 messages inside each other"),
        ('syntax = "\\xZ";', "invalid text"),
        ('import "\\ud800.proto";', "invalid text"),
        ("message A { reserved 1", "the file ends too early"),
    ],
)
def test_text_that_is_no_proto_file_is_refused_with_its_place(text: str, reason: str) -> None:
    with pytest.raises(ProtobufError, match=r"neither a descriptor nor a \.proto file") as refused:
        parse_proto(text)
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_message_is_json_as_protobuf_writes_it() -> None:
    found = messages(HEAD + "message Tree { string a_name = 1; repeated Tree below = 2; }")
    assert (
        found.json("p.Tree", b"\x0a\x02\xc3\xbc\x12\x03\x0a\x01b")
        == '{"a_name": "ü", "below": [{"a_name": "b"}]}'
    )
    with pytest.raises(ProtobufError, match=r"are no message p\.Tree"):
        found.json("p.Tree", b"\x0a\x09")
    file = HEAD + 'import "google/protobuf/any.proto"; message A { google.protobuf.Any any = 1; }'
    with pytest.raises(ProtobufError, match=r"the message p\.A has no JSON"):
        messages(file).json("p.A", b"\x0a\x05\x0a\x03x/y")


def test_json_of_any_has_the_types_of_the_files() -> None:
    types = "message A { google.protobuf.Any a = 1; } message B { int32 b = 1; }"
    found = messages(f'{HEAD} import "google/protobuf/any.proto"; {types}')
    content = b"\x0a\x0b\x0a\x05x/p.B\x12\x02\x08\x05"
    assert found.json("p.A", content) == '{"a": {"@type": "x/p.B", "b": 5}}'


def test_types_by_the_names_of_protobufs_own_have_no_json() -> None:
    found = messages('syntax = "proto3"; package google.protobuf; message Duration { int32 other = 1; }')
    with pytest.raises(ProtobufError, match="has no JSON"):
        found.json("google.protobuf.Duration", b"\x08\x01")


def test_a_file_whose_name_is_not_utf8_is_refused() -> None:
    with pytest.raises(ProtobufError, match=r"'a\\ud800' is not UTF-8"):
        files_of_texts("a\ud800", "message A {}", [])
