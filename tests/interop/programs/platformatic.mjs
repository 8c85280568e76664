// platformatic.mjs MODULES BOOTSTRAP: @platformatic/kafka under the commands of tests/interop/driver.py.
// MODULES is the folder with node_modules in it.
import { pathToFileURL } from "node:url";
import { event, numbers, parse, reply, serve, settings, show } from "./lines.mjs";

const [modules, bootstrap] = process.argv.slice(2);
const { Admin, ConfigResourceTypes, Consumer, FetchIsolationLevels, IncrementalAlterConfigOperationTypes, Producer } =
  await import(pathToFileURL(`${modules}/node_modules/@platformatic/kafka/dist/index.js`));

const client = { clientId: "platformatic", bootstrapBrokers: [bootstrap] };
const members = new Map();

async function using(owner, action) {
  try {
    return await action(owner);
  } finally {
    await owner.close();
  }
}

const shown = ({ partition, offset, timestamp, key, value, headerEntries }) =>
  show(partition, offset, timestamp, key, value, headerEntries.map(([name, content]) => [name.toString("utf8"), content]));

// A Map whose keys are buffers keeps headers of one name apart. Null is sent for undefined alone.
const sendable = (topic, { partition, timestamp, key, value, headers }) => ({
  topic,
  partition,
  timestamp: BigInt(timestamp),
  key: key ?? undefined,
  value: value ?? undefined,
  headers: new Map(headers.map(([name, content]) => [Buffer.from(name, "utf8"), content])),
});

async function produce(topic, codec, mode, lines) {
  const messages = lines.map((line) => sendable(topic, parse(line)));
  const idempotent = mode === "idempotent";
  await using(new Producer({ ...client, compression: codec, idempotent }), async (producer) => {
    const { offsets } = await producer.send({ messages });
    const next = new Map(offsets.map(({ partition, offset }) => [partition, offset]));
    for (const { partition } of messages) {
      reply(next.get(partition));
      next.set(partition, next.get(partition) + 1n);
    }
  });
}

// It reads as a member of a group only: of one that commits nothing.
async function read(topic, partition, count, level) {
  const isolationLevel = FetchIsolationLevels[level.toUpperCase()];
  const groupId = `read-${topic}-${Math.random()}`;
  await using(new Consumer({ ...client, groupId, autocommit: false, isolationLevel }), async (consumer) => {
    const stream = await consumer.consume({ topics: [topic], mode: "earliest" });
    let left = count;
    for await (const message of stream) {
      if (message.partition === partition && left-- > 0) reply(shown(message));
      if (left <= 0) break;
    }
  });
}

// Its streams go on with what was fetched when the group rebalances, and then read it once more. So that a record is
// shown once, a member that commits shows what it has committed; records are dropped of partitions that it does not own
// any more, and those that it has shown.
async function join(name, groupId, topic, mode) {
  const consumer = new Consumer({ ...client, groupId, autocommit: false });
  const member = { consumer, last: new Map(), owned: [], committing: Promise.resolve() };
  members.set(name, member);
  consumer.on("consumer:group:rebalance", () => {
    const { owned } = member;
    member.owned = [];
    member.committing.then(() => event(name, "revoked", numbers(owned)));
  });
  consumer.on("consumer:group:join", ({ assignments }) => {
    const owned = assignments.find((one) => one.topic === topic)?.partitions ?? [];
    member.owned = owned;
    member.last.clear();
    member.committing.then(() => event(name, "assigned", numbers(owned)));
  });
  member.stream = await consumer.consume({ topics: [topic], mode: "committed", fallbackMode: "earliest" });
  consume(name, member, mode).catch((error) => event(name, "error", error.message));
}

async function consume(name, member, mode) {
  for await (const message of member.stream) {
    if (!member.owned.includes(message.partition)) continue;
    if (message.offset <= member.last.get(message.partition)?.offset) continue;
    if (mode === "commits") {
      member.committing = committed(member.consumer, [message]).then(() => true, () => false);
      if (!(await member.committing)) continue;
    }
    event(name, "record", shown(message));
    member.last.set(message.partition, message);
  }
}

// message.commit() waits for the end of a rebalance, and then commits also what another member has by then.
const committed = (consumer, messages) =>
  consumer.commit({
    offsets: messages.map(({ topic, partition, offset, leaderEpoch }) => ({
      topic, partition, offset: offset + 1n, leaderEpoch,
    })),
  });

function commit(name) {
  const { consumer, last } = members.get(name);
  return committed(consumer, [...last.values()]);
}

async function leave(name) {
  const member = members.get(name);
  members.delete(name);
  member.owned = [];
  await member.committing;
  await member.stream.close();
  event(name, "leaving");
  await member.consumer.close();
}

const asAdmin = {
  create: async (admin, topic, partitions, ...pairs) => {
    const made = { topics: [topic], configs: settings(pairs) };
    if (partitions !== "default") Object.assign(made, { partitions: Number(partitions), replicas: 1 });
    await admin.createTopics(made);
  },
  topics: async (admin) => (await admin.listTopics()).forEach((name) => reply(name)),
  describe: async (admin, topic) => {
    const { topics } = await admin.metadata({ topics: [topic], forceUpdate: true });
    topics.get(topic).partitions.forEach((one, number) => reply(number, one.leader, one.replicas.length));
  },
  delete: (admin, topic) => admin.deleteTopics({ topics: [topic] }),
  config: async (admin, topic) => {
    const resource = { resourceType: ConfigResourceTypes.TOPIC, resourceName: topic };
    const [{ configs }] = await admin.describeConfigs({ resources: [resource] });
    configs.forEach(({ name, value }) => reply(`${name}=${value}`));
  },
  alter: (admin, topic, ...pairs) => {
    const configOperation = IncrementalAlterConfigOperationTypes.SET;
    const configs = settings(pairs).map((pair) => ({ ...pair, configOperation }));
    return admin.incrementalAlterConfigs({
      resources: [{ resourceType: ConfigResourceTypes.TOPIC, resourceName: topic, configs }],
    });
  },
  groups: async (admin) => [...(await admin.listGroups()).keys()].forEach((name) => reply(name)),
  group: async (admin, name) => {
    const group = (await admin.describeGroups({ groups: [name] })).get(name);
    reply(group.state);
    for (const { assignments } of group.members.values()) {
      reply(numbers([...assignments.values()].flatMap(({ partitions }) => partitions)));
    }
  },
};

async function times(topic, timestamp) {
  await using(new Consumer({ ...client, groupId: "times" }), async (consumer) => {
    const offsets = await consumer.listOffsets({ topics: [topic], timestamp: BigInt(timestamp) });
    offsets.get(topic).forEach((offset, partition) => reply(partition, offset));
  });
}

async function run([name, ...words], lines) {
  if (name === "produce") return produce(words[0], words[1], words[2], lines);
  if (name === "read") return read(words[0], Number(words[1]), Number(words[2]), words[3]);
  if (name === "times") return times(...words);
  if (name === "join") return join(...words);
  if (name === "commit") return commit(words[0]);
  if (name === "leave") return leave(words[0]);
  return using(new Admin(client), (admin) => asAdmin[name](admin, ...words));
}

await serve(run);
