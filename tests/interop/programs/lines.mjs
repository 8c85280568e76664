// The commands of tests/interop/driver.py, for programs of Node.js.
import { createInterface } from "node:readline";

const say = (line) => process.stdout.write(`${line}\n`);
const encode = (bytes) => (bytes === null || bytes === undefined ? "-" : `=${Buffer.from(bytes).toString("base64")}`);
const decode = (word) => (word === "-" ? null : Buffer.from(word.slice(1), "base64"));

export const reply = (...words) => say(`> ${words.join(" ")}`);
export const event = (member, ...words) => say(`@ ${member} ${words.join(" ")}`);
export const numbers = (partitions) => [...partitions].sort((a, b) => a - b).join(",") || "-";
export const settings = (words) =>
  words.map((word) => /^([^=]*)=(.*)$/.exec(word)).map(([, name, value]) => ({ name, value }));

// Headers are pairs of a text and bytes.
export function parse(line) {
  const [partition, timestamp, key, value, headers] = line.split(" ");
  const pairs = headers === "-" ? [] : headers.split(",").map((header) => header.split(":").map(decode));
  return {
    partition: Number(partition),
    timestamp,
    key: decode(key),
    value: decode(value),
    headers: pairs.map(([name, content]) => [name.toString("utf8"), content]),
  };
}

export function show(partition, offset, timestamp, key, value, headers) {
  const pairs = headers.map(([name, content]) => `${encode(Buffer.from(name, "utf8"))}:${encode(content)}`);
  return [partition, offset, timestamp, encode(key), encode(value), pairs.join(",") || "-"].join(" ");
}

// Calls run(words, lines) for each command, until the input ends.
export async function serve(run) {
  const input = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  for (let { value: line, done } = await input.next(); !done; { value: line, done } = await input.next()) {
    const words = line.split(" ");
    const lines = [];
    for (let more = words[0] === "produce" ? Number(words[4]) : 0; more > 0; more--) {
      lines.push((await input.next()).value);
    }
    try {
      await run(words, lines);
      say("ok");
    } catch (error) {
      process.stderr.write(`${error.stack}\n`);
      say(`failed ${String(error.message).replaceAll("\n", " ")}`);
    }
  }
  process.exit(0);
}
