//! lines BOOTSTRAP: rskafka, with its own defaults, under the commands of tests/interop/driver.py that it has.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead, Write};

use base64::{engine::general_purpose::STANDARD, Engine};
use chrono::{DateTime, Utc};
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::{Record, RecordAndOffset};

type Outcome<T> = Result<T, Box<dyn Error>>;

const TIMEOUT_MS: i32 = 30_000;

fn encode(data: &Option<Vec<u8>>) -> String {
    match data {
        None => "-".to_string(),
        Some(bytes) => format!("={}", STANDARD.encode(bytes)),
    }
}

fn decode(word: &str) -> Outcome<Option<Vec<u8>>> {
    match word.strip_prefix('=') {
        None => Ok(None),
        Some(text) => Ok(Some(STANDARD.decode(text)?)),
    }
}

fn parsed(words: &[&str]) -> Outcome<Record> {
    let mut headers = BTreeMap::new();
    if words[4] != "-" {
        for pair in words[4].split(',') {
            let (name, value) = pair.split_once(':').ok_or("a header without a value")?;
            headers.insert(
                String::from_utf8(decode(name)?.unwrap_or_default())?,
                decode(value)?.ok_or("a null header cannot be sent")?,
            );
        }
    }
    Ok(Record {
        key: decode(words[2])?,
        value: decode(words[3])?,
        headers,
        timestamp: DateTime::<Utc>::from_timestamp_millis(words[1].parse()?).ok_or("no such time")?,
    })
}

fn shown(partition: i32, found: &RecordAndOffset) -> String {
    let record = &found.record;
    let headers: Vec<String> = record
        .headers
        .iter()
        .map(|(name, value)| format!("{}:{}", encode(&Some(name.clone().into_bytes())), encode(&Some(value.clone()))))
        .collect();
    format!(
        "{} {} {} {} {} {}",
        partition,
        found.offset,
        record.timestamp.timestamp_millis(),
        encode(&record.key),
        encode(&record.value),
        if headers.is_empty() { "-".to_string() } else { headers.join(",") }
    )
}

fn codec(name: &str) -> Outcome<Compression> {
    Ok(match name {
        "none" => Compression::NoCompression,
        "gzip" => Compression::Gzip,
        "snappy" => Compression::Snappy,
        "lz4" => Compression::Lz4,
        "zstd" => Compression::Zstd,
        _ => return Err(format!("no such codec: {name}").into()),
    })
}

async fn of(client: &Client, topic: &str, partition: i32) -> Outcome<PartitionClient> {
    Ok(client.partition_client(topic, partition, UnknownTopicHandling::Retry).await?)
}

async fn produce(client: &Client, topic: &str, compression: &str, lines: &[String]) -> Outcome<()> {
    let mut by_partition: BTreeMap<i32, Vec<(usize, Record)>> = BTreeMap::new();
    for (number, line) in lines.iter().enumerate() {
        let words: Vec<&str> = line.split(' ').collect();
        by_partition.entry(words[0].parse()?).or_default().push((number, parsed(&words)?));
    }
    let mut offsets = vec![-1; lines.len()];
    for (partition, numbered) in by_partition {
        let (numbers, records): (Vec<usize>, Vec<Record>) = numbered.into_iter().unzip();
        let to = of(client, topic, partition).await?;
        let given = to.produce(records, codec(compression)?).await?;
        for (number, offset) in numbers.into_iter().zip(given) {
            offsets[number] = offset;
        }
    }
    for offset in offsets {
        println!("> {offset}");
    }
    Ok(())
}

async fn read(client: &Client, topic: &str, partition: i32, count: usize) -> Outcome<()> {
    let from = of(client, topic, partition).await?;
    let (mut seen, mut offset) = (0, from.get_offset(OffsetAt::Earliest).await?);
    while seen < count {
        let (records, _) = from.fetch_records(offset, 1..50_000_000, 5_000).await?;
        if records.is_empty() {
            return Err(format!("nothing more came after {seen} records").into());
        }
        for found in records.iter().take(count - seen) {
            println!("> {}", shown(partition, found));
            seen += 1;
            offset = found.offset + 1;
        }
    }
    Ok(())
}

async fn run(client: &Client, words: &[&str], lines: &[String]) -> Outcome<()> {
    match words[0] {
        "produce" => produce(client, words[1], words[2], lines).await?,
        "read" => read(client, words[1], words[2].parse()?, words[3].parse()?).await?,
        "topics" => {
            for topic in client.list_topics().await? {
                println!("> {}", topic.name);
            }
        }
        "create" => {
            client.controller_client()?.create_topic(words[1], words[2].parse()?, 1, TIMEOUT_MS).await?;
        }
        "delete" => {
            client.controller_client()?.delete_topic(words[1], TIMEOUT_MS).await?;
        }
        other => return Err(format!("no such command: {other}").into()),
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let bootstrap = std::env::args().nth(1).ok_or("give the broker's address")?;
    let client = ClientBuilder::new(vec![bootstrap]).build().await?;
    let mut input = std::io::stdin().lock().lines();
    while let Some(line) = input.next() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        let mut lines = Vec::new();
        if words[0] == "produce" {
            for _ in 0..words[4].parse::<usize>()? {
                lines.push(input.next().ok_or("a record is missing")??);
            }
        }
        match run(&client, &words, &lines).await {
            Ok(()) => println!("ok"),
            Err(error) => println!("failed {}", error.to_string().replace('\n', " ")),
        }
        std::io::stdout().flush()?;
    }
    Ok(())
}
