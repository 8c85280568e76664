// Command franz BOOTSTRAP: franz-go, with its own defaults, under the commands of tests/interop/driver.py.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"interop/lines"
)

const patience = 30 * time.Second

var (
	bootstrap string
	members   = map[string]*member{}
	codecs    = map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
)

func main() {
	bootstrap = os.Args[1]
	lines.Serve(run)
}

func client(options ...kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(append(options, kgo.SeedBrokers(bootstrap))...)
	if err != nil {
		panic(err)
	}
	return made
}

func run(words []string, records []lines.Record) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	switch words[0] {
	case "produce":
		return produce(ctx, words[1], words[2], words[3], records)
	case "read":
		return read(ctx, words[1], int32(lines.Number(words[2])), int(lines.Number(words[3])), words[4])
	case "join":
		members[words[1]] = join(words[1], words[2], words[3], words[4] == "commits")
		return nil
	case "commit", "leave":
		asked := members[words[1]]
		asked.asked <- words[0]
		return <-asked.done
	}
	cl := client()
	defer cl.Close()
	return administer(ctx, kadm.NewClient(cl), words)
}

func produce(ctx context.Context, topic, codec, mode string, records []lines.Record) error {
	options := []kgo.Opt{kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(codecs[codec])}
	if mode == "plain" {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	cl := client(options...)
	defer cl.Close()
	var sent []*kgo.Record
	for _, record := range records {
		var headers []kgo.RecordHeader
		for _, header := range record.Headers {
			headers = append(headers, kgo.RecordHeader{Key: header.Name, Value: header.Value})
		}
		sent = append(sent, &kgo.Record{
			Topic: topic, Partition: record.Partition, Timestamp: time.UnixMilli(record.Timestamp),
			Key: record.Key, Value: record.Value, Headers: headers,
		})
	}
	if err := cl.ProduceSync(ctx, sent...).FirstErr(); err != nil {
		return err
	}
	for _, record := range sent {
		lines.Reply(record.Offset)
	}
	return nil
}

func received(record *kgo.Record) lines.Record {
	var headers []lines.Header
	for _, header := range record.Headers {
		headers = append(headers, lines.Header{Name: header.Key, Value: header.Value})
	}
	return lines.Record{
		Partition: record.Partition, Offset: record.Offset, Timestamp: record.Timestamp.UnixMilli(),
		Key: record.Key, Value: record.Value, Headers: headers,
	}
}

func read(ctx context.Context, topic string, partition int32, count int, level string) error {
	from := map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().AtStart()}}
	isolation := kgo.ReadUncommitted()
	if level == "read_committed" {
		isolation = kgo.ReadCommitted()
	}
	cl := client(kgo.ConsumePartitions(from), kgo.FetchIsolationLevel(isolation))
	defer cl.Close()
	for count > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			lines.Reply(received(record))
			count--
		})
	}
	return nil
}

type member struct {
	name    string
	commits bool
	cl      *kgo.Client
	asked   chan string
	done    chan error
}

func join(name, group, topic string, commits bool) *member {
	m := &member{name: name, commits: commits, asked: make(chan string), done: make(chan error)}
	m.cl = client(
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, given map[string][]int32) {
			lines.Event(name, "assigned", lines.Numbers(given[topic]))
		}),
		kgo.OnPartitionsRevoked(func(ctx context.Context, cl *kgo.Client, gone map[string][]int32) {
			if commits && len(gone) > 0 {
				if err := cl.CommitUncommittedOffsets(ctx); err != nil {
					lines.Event(name, "error", err)
				}
			}
			lines.Event(name, "revoked", lines.Numbers(gone[topic]))
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, gone map[string][]int32) {
			lines.Event(name, "revoked", lines.Numbers(gone[topic]))
		}),
	)
	go m.poll()
	return m
}

func (m *member) poll() {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		fetches := m.cl.PollFetches(ctx)
		cancel()
		fetches.EachError(func(_ string, _ int32, err error) {
			if !errors.Is(err, context.DeadlineExceeded) {
				lines.Event(m.name, "error", err)
			}
		})
		fetches.EachRecord(func(record *kgo.Record) { lines.Event(m.name, "record", received(record)) })
		m.cl.AllowRebalance()
		select {
		case what := <-m.asked:
			m.done <- m.does(what)
			if what == "leave" {
				return
			}
		default:
		}
	}
}

func (m *member) does(what string) error {
	if what == "commit" || m.commits {
		if err := m.cl.CommitUncommittedOffsets(context.Background()); err != nil {
			return err
		}
	}
	if what == "leave" {
		lines.Event(m.name, "leaving")
		m.cl.CloseAllowingRebalance()
	}
	return nil
}

func administer(ctx context.Context, admin *kadm.Client, words []string) error {
	switch words[0] {
	case "times":
		found, err := admin.ListOffsetsAfterMilli(ctx, lines.Number(words[2]), words[1])
		if err == nil {
			err = found.Error()
		}
		ends, endsErr := admin.ListEndOffsets(ctx, words[1])
		if err != nil || endsErr != nil {
			return errors.Join(err, endsErr)
		}
		// For a time after the last record it gives the end, and leaves the timestamp out.
		found.Each(func(one kadm.ListedOffset) {
			if end, _ := ends.Lookup(one.Topic, one.Partition); one.Offset == end.Offset && one.Timestamp < 0 {
				one.Offset = -1
			}
			lines.Reply(one.Partition, one.Offset)
		})
		return nil
	case "create":
		_, err := admin.CreateTopic(ctx, int32(lines.Number(words[2])), 1, lines.Pairs(words[3:]), words[1])
		return err
	case "topics":
		found, err := admin.ListTopics(ctx)
		for _, name := range found.Names() {
			lines.Reply(name)
		}
		return err
	case "describe":
		found, err := admin.ListTopics(ctx, words[1])
		for _, one := range found[words[1]].Partitions.Sorted() {
			lines.Reply(one.Partition, one.Leader, len(one.Replicas))
		}
		return err
	case "delete":
		_, err := admin.DeleteTopic(ctx, words[1])
		return err
	case "config":
		found, err := admin.DescribeTopicConfigs(ctx, words[1])
		if err != nil {
			return err
		}
		one, err := found.On(words[1], nil)
		for _, config := range one.Configs {
			lines.Reply(config.Key + "=" + config.MaybeValue())
		}
		return errors.Join(err, one.Err)
	case "alter":
		var changes []kadm.AlterConfig
		for name, value := range lines.Pairs(words[2:]) {
			changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: value})
		}
		changed, err := admin.AlterTopicConfigs(ctx, changes, words[1])
		for _, one := range changed {
			err = errors.Join(err, one.Err)
		}
		return err
	case "groups":
		found, err := admin.ListGroups(ctx)
		for _, name := range found.Groups() {
			lines.Reply(name)
		}
		return err
	case "group":
		found, err := admin.DescribeGroups(ctx, words[1])
		if err != nil {
			return err
		}
		group := found[words[1]]
		lines.Reply(group.State)
		for _, one := range group.Members {
			assignment, _ := one.Assigned.AsConsumer()
			for _, topic := range assignment.Topics {
				lines.Reply(lines.Numbers(topic.Partitions))
			}
		}
		return group.Err
	}
	return fmt.Errorf("no such command: %s", words[0])
}
