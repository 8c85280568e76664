"""Confluent's own serializers: values of JSON rows to base64, and back.

    confluent_serializers.py URL TOPIC FORMAT-write|FORMAT-read NAME [FILE…]

FORMAT is ``json``, with the JSON Schema as NAME, or ``protobuf``, with the name of the message and the
descriptors of files in base64, each behind those that it imports. Input is a JSON list, output a line each.
"""

import base64
import json
import sys

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.serialization import MessageField, SerializationContext

url, topic, task, name, *files = sys.argv[1:]
registry = SchemaRegistryClient({"url": url})
context = SerializationContext(topic, MessageField.VALUE)


def message_class():
    from google.protobuf import descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    for file in files:
        pool.AddSerializedFile(base64.b64decode(file))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def writer():
    if task == "json-write":
        from confluent_kafka.schema_registry.json_schema import JSONSerializer

        return JSONSerializer(name, registry)
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
    from google.protobuf.json_format import ParseDict

    kind = message_class()
    serializer = ProtobufSerializer(kind, registry, {"use.deprecated.format": False})
    return lambda row, context: serializer(ParseDict(row, kind()), context)


def reader():
    if task == "json-read":
        from confluent_kafka.schema_registry.json_schema import JSONDeserializer

        return JSONDeserializer(None, schema_registry_client=registry)
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
    from google.protobuf.json_format import MessageToDict

    deserializer = ProtobufDeserializer(message_class(), {"use.deprecated.format": False}, registry)
    return lambda value, context: MessageToDict(
        deserializer(value, context), preserving_proto_field_name=True
    )


if task.endswith("-write"):
    serialize = writer()
    for row in json.load(sys.stdin):
        sys.stdout.write(base64.b64encode(serialize(row, context)).decode() + "\n")
else:
    deserialize = reader()
    for value in json.load(sys.stdin):
        sys.stdout.write(json.dumps(deserialize(base64.b64decode(value), context)) + "\n")
