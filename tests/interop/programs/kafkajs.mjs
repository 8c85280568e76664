// kafkajs.mjs MODULES BOOTSTRAP: KafkaJS, with its own defaults, under the commands of tests/interop/driver.py.
// MODULES is the folder with node_modules in it.
import { createRequire } from "node:module";
import { event, numbers, parse, reply, serve, settings, show } from "./lines.mjs";

const [modules, bootstrap] = process.argv.slice(2);
const require = createRequire(`${modules}/package.json`);
const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, logLevel } = require("kafkajs");
CompressionCodecs[CompressionTypes.Snappy] = require("kafkajs-snappy");

const kafka = new Kafka({ clientId: "kafkajs", brokers: [bootstrap], logLevel: logLevel.NOTHING });
const codecs = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy };
const members = new Map();

// Values of one name are a list.
function byName(pairs) {
  const found = {};
  for (const [name, value] of pairs) found[name] = name in found ? [found[name], value].flat() : value;
  return found;
}

function shown(partition, { offset, timestamp, key, value, headers }) {
  const pairs = Object.entries(headers ?? {}).flatMap(([name, values]) => [values].flat().map((one) => [name, one]));
  return show(partition, offset, timestamp, key, value, pairs);
}

async function produce(topic, codec, mode, lines) {
  const producer = kafka.producer({ idempotent: mode === "idempotent" });
  await producer.connect();
  try {
    const messages = lines.map(parse).map((message) => ({ ...message, headers: byName(message.headers) }));
    const sent = await producer.send({ topic, messages, compression: codecs[codec] });
    const next = new Map(sent.map(({ partition, baseOffset }) => [partition, Number(baseOffset)]));
    for (const { partition } of messages) {
      reply(next.get(partition));
      next.set(partition, next.get(partition) + 1);
    }
  } finally {
    await producer.disconnect();
  }
}

// It reads as a member of a group only: of one that commits nothing.
async function read(topic, partition, count, level) {
  const consumer = kafka.consumer({
    groupId: `read-${topic}-${Math.random()}`, readUncommitted: level === "read_uncommitted",
  });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  let seen = 0;
  await new Promise((resolve, reject) => {
    if (count === 0) resolve();
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error));
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition: from, message }) => {
        if (from !== partition || seen >= count) return;
        reply(shown(partition, message));
        if (++seen === count) resolve();
      },
    }).catch(reject);
  });
  await consumer.disconnect();
}

async function join(name, groupId, topic, mode) {
  const consumer = kafka.consumer({ groupId });
  const received = new Map();
  const commit = () => consumer.commitOffsets([...received].map(([partition, offset]) => ({
    topic, partition, offset: String(offset + 1),
  })));
  members.set(name, { consumer, commit });
  let owned = [];
  consumer.on(consumer.events.REBALANCING, () => {
    event(name, "revoked", numbers(owned));
    owned = [];
  });
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    owned = payload.memberAssignment[topic] ?? [];
    received.clear();
    event(name, "assigned", numbers(owned));
  });
  consumer.on(consumer.events.CRASH, ({ payload }) => event(name, "error", payload.error.message));
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  await consumer.run({
    autoCommit: mode === "commits",
    eachMessage: async ({ partition, message }) => {
      event(name, "record", shown(partition, message));
      received.set(partition, Number(message.offset));
    },
  });
}

async function leave(name) {
  const { consumer } = members.get(name);
  members.delete(name);
  await consumer.stop();
  event(name, "leaving");
  await consumer.disconnect();
}

const asAdmin = {
  times: async (admin, topic, timestamp) => {
    // For a time behind the last record it answers the end of the log.
    const ends = new Map((await admin.fetchTopicOffsets(topic)).map(({ partition, high }) => [partition, high]));
    for (const { partition, offset } of await admin.fetchTopicOffsetsByTimestamp(topic, Number(timestamp))) {
      reply(partition, offset === ends.get(partition) ? -1 : offset);
    }
  },
  create: async (admin, topic, partitions, ...pairs) => {
    const made = { topic, configEntries: settings(pairs) };
    if (partitions !== "default") Object.assign(made, { numPartitions: Number(partitions), replicationFactor: 1 });
    await admin.createTopics({ topics: [made], waitForLeaders: true });
  },
  topics: async (admin) => (await admin.listTopics()).forEach((name) => reply(name)),
  describe: async (admin, topic) => {
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
    topics[0].partitions.forEach((one) => reply(one.partitionId, one.leader, one.replicas.length));
  },
  delete: async (admin, topic) => admin.deleteTopics({ topics: [topic] }),
  config: async (admin, topic) => {
    const { resources } = await admin.describeConfigs({
      includeSynonyms: false, resources: [{ type: ConfigResourceTypes.TOPIC, name: topic }],
    });
    resources[0].configEntries.forEach(({ configName, configValue }) => reply(`${configName}=${configValue}`));
  },
  alter: async (admin, topic, ...pairs) => admin.alterConfigs({
    validateOnly: false, resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries: settings(pairs) }],
  }),
  groups: async (admin) => (await admin.listGroups()).groups.forEach(({ groupId }) => reply(groupId)),
  group: async (admin, group) => {
    const { groups } = await admin.describeGroups([group]);
    const { AssignerProtocol } = require("kafkajs");
    reply(groups[0].state);
    for (const { memberAssignment } of groups[0].members) {
      const { assignment } = AssignerProtocol.MemberAssignment.decode(memberAssignment);
      reply(numbers(Object.values(assignment).flat()));
    }
  },
};

async function run([name, ...words], lines) {
  if (name === "produce") return produce(words[0], words[1], words[2], lines);
  if (name === "read") return read(words[0], Number(words[1]), Number(words[2]), words[3]);
  if (name === "join") return join(...words);
  if (name === "commit") return members.get(words[0]).commit();
  if (name === "leave") return leave(words[0]);
  const admin = kafka.admin();
  await admin.connect();
  try {
    return await asAdmin[name](admin, ...words);
  } finally {
    await admin.disconnect();
  }
}

await serve(run);
