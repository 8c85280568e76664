// Command kafkago BOOTSTRAP: segmentio's kafka-go, with its own defaults, under the commands of tests/interop/driver.py.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"interop/lines"
)

const patience = 30 * time.Second

var (
	brokers []string
	client  *kafka.Client
	members = map[string]*member{}
	codecs  = map[string]kafka.Compression{
		"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
	}
)

func main() {
	brokers = os.Args[1:]
	client = &kafka.Client{Addr: kafka.TCP(brokers...), Timeout: patience}
	lines.Serve(run)
}

func run(words []string, records []lines.Record) error {
	switch words[0] {
	case "produce":
		return produce(words[1], words[2], records)
	case "read":
		return read(words[1], int(lines.Number(words[2])), int(lines.Number(words[3])), words[4])
	case "times":
		return times(words[1], lines.Number(words[2]))
	case "join":
		made, err := join(words[1], words[2], words[3], words[4] == "commits")
		members[words[1]] = made
		return err
	case "commit":
		return members[words[1]].commit()
	case "leave":
		return members[words[1]].leave()
	}
	return administer(words)
}

// toItsPartition sends each message where the test wants it: the message's WriterData names the place in records.
type toItsPartition []lines.Record

func (records toItsPartition) Balance(message kafka.Message, _ ...int) int {
	return int(records[message.WriterData.(int)].Partition)
}

func produce(topic, codec string, records []lines.Record) error {
	offsets := make([]int64, len(records))
	var mutex sync.Mutex
	writer := &kafka.Writer{
		Addr: kafka.TCP(brokers...), Topic: topic, Balancer: toItsPartition(records), Compression: codecs[codec],
		RequiredAcks: kafka.RequireAll, BatchTimeout: 10 * time.Millisecond,
		Completion: func(sent []kafka.Message, err error) {
			mutex.Lock()
			defer mutex.Unlock()
			for _, message := range sent {
				offsets[message.WriterData.(int)] = message.Offset
			}
		},
	}
	var messages []kafka.Message
	for i, record := range records {
		var headers []kafka.Header
		for _, header := range record.Headers {
			headers = append(headers, kafka.Header{Key: header.Name, Value: header.Value})
		}
		messages = append(messages, kafka.Message{
			Key: record.Key, Value: record.Value, Headers: headers, Time: time.UnixMilli(record.Timestamp), WriterData: i,
		})
	}
	// What it knows of the topics is some seconds old; nothing is sent before it knows the partitions.
	err := writer.WriteMessages(context.Background(), messages...)
	for end := time.Now().Add(patience); errors.Is(err, kafka.UnknownTopicOrPartition) && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
		err = writer.WriteMessages(context.Background(), messages...)
	}
	if closed := writer.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	for _, offset := range offsets {
		lines.Reply(offset)
	}
	return nil
}

func received(message kafka.Message) lines.Record {
	var headers []lines.Header
	for _, header := range message.Headers {
		headers = append(headers, lines.Header{Name: header.Key, Value: header.Value})
	}
	return lines.Record{
		Partition: int32(message.Partition), Offset: message.Offset, Timestamp: message.Time.UnixMilli(),
		Key: message.Key, Value: message.Value, Headers: headers,
	}
}

func reader(topic string, partition int, level kafka.IsolationLevel) *kafka.Reader {
	return kafka.NewReader(kafka.ReaderConfig{
		Brokers: brokers, Topic: topic, Partition: partition, IsolationLevel: level, MaxWait: 500 * time.Millisecond,
	})
}

func read(topic string, partition, count int, level string) error {
	isolation := kafka.ReadUncommitted
	if level == "read_committed" {
		isolation = kafka.ReadCommitted
	}
	from := reader(topic, partition, isolation)
	defer from.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for range count {
		message, err := from.ReadMessage(ctx)
		if err != nil {
			return err
		}
		lines.Reply(received(message))
	}
	return nil
}

func partitionsOf(topic string) ([]kafka.Partition, error) {
	found, err := client.Metadata(context.Background(), &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return nil, err
	}
	return found.Topics[0].Partitions, found.Topics[0].Error
}

func times(topic string, timestamp int64) error {
	partitions, err := partitionsOf(topic)
	if err != nil {
		return err
	}
	var asked []kafka.OffsetRequest
	for _, one := range partitions {
		asked = append(asked, kafka.TimeOffsetOf(one.ID, time.UnixMilli(timestamp)))
	}
	found, err := client.ListOffsets(context.Background(), &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{topic: asked},
	})
	if err != nil {
		return err
	}
	for _, one := range found.Topics[topic] {
		if one.Error != nil {
			return one.Error
		}
		for offset := range one.Offsets {
			lines.Reply(one.Partition, offset)
		}
	}
	return nil
}

type member struct {
	name, topic string
	commits     bool
	group       *kafka.ConsumerGroup
	stop        context.CancelFunc
	stopped     chan struct{}
	mutex       sync.Mutex
	generation  *kafka.Generation
	next        map[int]int64
}

func join(name, group, topic string, commits bool) (*member, error) {
	made, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: group, Brokers: brokers, Topics: []string{topic}, StartOffset: kafka.FirstOffset,
	})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	m := &member{name: name, topic: topic, commits: commits, group: made, stop: stop, stopped: make(chan struct{})}
	go func() {
		defer close(m.stopped)
		for {
			generation, err := made.Next(ctx)
			if ctx.Err() != nil {
				return
			}
			if errors.Is(err, kafka.GroupCoordinatorNotAvailable) {
				continue // the first question makes the offsets topic; it asks again
			}
			if err != nil {
				lines.Event(name, "error", err)
				continue
			}
			m.begin(generation)
		}
	}()
	return m, nil
}

func (m *member) begin(generation *kafka.Generation) {
	given := generation.Assignments[m.topic]
	var partitions []int32
	for _, one := range given {
		partitions = append(partitions, int32(one.ID))
	}
	m.mutex.Lock()
	m.generation, m.next = generation, map[int]int64{}
	m.mutex.Unlock()
	lines.Event(m.name, "assigned", lines.Numbers(partitions))
	var reading sync.WaitGroup
	reading.Add(len(given))
	for _, one := range given {
		generation.Start(func(ctx context.Context) {
			defer reading.Done()
			m.consume(ctx, one)
		})
	}
	// The group is not joined again before this one has returned.
	generation.Start(func(ctx context.Context) {
		<-ctx.Done()
		reading.Wait()
		if m.commits {
			if err := m.commit(); err != nil {
				lines.Event(m.name, "error", err)
			}
		}
		lines.Event(m.name, "revoked", lines.Numbers(partitions))
	})
}

func (m *member) consume(ctx context.Context, one kafka.PartitionAssignment) {
	from := reader(m.topic, one.ID, kafka.ReadUncommitted)
	defer from.Close()
	if err := from.SetOffset(one.Offset); err != nil {
		lines.Event(m.name, "error", err)
	}
	for {
		message, err := from.ReadMessage(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			lines.Event(m.name, "error", err)
			continue
		}
		lines.Event(m.name, "record", received(message))
		m.mutex.Lock()
		m.next[one.ID] = message.Offset + 1
		m.mutex.Unlock()
	}
}

func (m *member) commit() error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if len(m.next) == 0 {
		return nil
	}
	return m.generation.CommitOffsets(map[string]map[int]int64{m.topic: m.next})
}

func (m *member) leave() error {
	m.stop()
	<-m.stopped
	err := m.group.Close()
	lines.Event(m.name, "leaving")
	return err
}

func administer(words []string) error {
	ctx := context.Background()
	switch words[0] {
	case "create":
		var entries []kafka.ConfigEntry
		for name, value := range lines.Pairs(words[3:]) {
			entries = append(entries, kafka.ConfigEntry{ConfigName: name, ConfigValue: *value})
		}
		made, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
			Topic: words[1], NumPartitions: int(lines.Number(words[2])), ReplicationFactor: 1, ConfigEntries: entries,
		}}})
		if err != nil {
			return err
		}
		return made.Errors[words[1]]
	case "topics":
		found, err := client.Metadata(ctx, &kafka.MetadataRequest{})
		if err != nil {
			return err
		}
		for _, one := range found.Topics {
			lines.Reply(one.Name)
		}
		return nil
	case "describe":
		partitions, err := partitionsOf(words[1])
		for _, one := range partitions {
			lines.Reply(one.ID, one.Leader.ID, len(one.Replicas))
		}
		return err
	case "delete":
		gone, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: words[1:]})
		if err != nil {
			return err
		}
		return gone.Errors[words[1]]
	case "config":
		found, err := client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
			Resources: []kafka.DescribeConfigRequestResource{{ResourceType: kafka.ResourceTypeTopic, ResourceName: words[1]}},
		})
		if err != nil {
			return err
		}
		for _, one := range found.Resources[0].ConfigEntries {
			lines.Reply(one.ConfigName + "=" + one.ConfigValue)
		}
		return found.Resources[0].Error
	case "alter":
		var changes []kafka.IncrementalAlterConfigsRequestConfig
		for name, value := range lines.Pairs(words[2:]) {
			changes = append(changes, kafka.IncrementalAlterConfigsRequestConfig{
				Name: name, Value: *value, ConfigOperation: kafka.ConfigOperationSet,
			})
		}
		done, err := client.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{
			Resources: []kafka.IncrementalAlterConfigsRequestResource{
				{ResourceType: kafka.ResourceTypeTopic, ResourceName: words[1], Configs: changes},
			},
		})
		if err != nil {
			return err
		}
		return done.Resources[0].Error
	case "groups":
		found, err := client.ListGroups(ctx, &kafka.ListGroupsRequest{})
		if err != nil {
			return err
		}
		for _, one := range found.Groups {
			lines.Reply(one.GroupID)
		}
		return found.Error
	case "group":
		found, err := client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: words[1:]})
		if err != nil {
			return err
		}
		lines.Reply(found.Groups[0].GroupState)
		for _, one := range found.Groups[0].Members {
			for _, topic := range one.MemberAssignments.Topics {
				var partitions []int32
				for _, partition := range topic.Partitions {
					partitions = append(partitions, int32(partition))
				}
				lines.Reply(lines.Numbers(partitions))
			}
		}
		return found.Groups[0].Error
	}
	return fmt.Errorf("no such command: %s", words[0])
}
