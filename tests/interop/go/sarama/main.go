// Command sarama BOOTSTRAP: sarama, with its own defaults, under the commands of tests/interop/driver.py.
package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"interop/lines"
)

const patience = 30 * time.Second

var (
	brokers []string
	members = map[string]*member{}
	codecs  = map[string]sarama.CompressionCodec{
		"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
		"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
	}
)

func main() {
	brokers = os.Args[1:]
	lines.Serve(run)
}

func run(words []string, records []lines.Record) error {
	switch words[0] {
	case "produce":
		return produce(words[1], words[2], words[3], records)
	case "read":
		return read(words[1], int32(lines.Number(words[2])), int(lines.Number(words[3])), words[4])
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
	admin, err := sarama.NewClusterAdmin(brokers, sarama.NewConfig())
	if err != nil {
		return err
	}
	defer admin.Close()
	return administer(admin, words)
}

func bytes(data []byte) sarama.Encoder {
	if data == nil {
		return nil
	}
	return sarama.ByteEncoder(data)
}

func produce(topic, codec, mode string, records []lines.Record) error {
	config := sarama.NewConfig()
	config.Producer.Compression = codecs[codec]
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = mode == "idempotent"
	if config.Producer.Idempotent {
		config.Net.MaxOpenRequests = 1 // it insists
	}
	producer, err := sarama.NewSyncProducer(brokers, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	var sent []*sarama.ProducerMessage
	for _, record := range records {
		var headers []sarama.RecordHeader
		for _, header := range record.Headers {
			headers = append(headers, sarama.RecordHeader{Key: []byte(header.Name), Value: header.Value})
		}
		sent = append(sent, &sarama.ProducerMessage{
			Topic: topic, Partition: record.Partition, Timestamp: time.UnixMilli(record.Timestamp),
			Key: bytes(record.Key), Value: bytes(record.Value), Headers: headers,
		})
	}
	if err := producer.SendMessages(sent); err != nil {
		return err
	}
	for _, message := range sent {
		lines.Reply(message.Offset)
	}
	return nil
}

func received(message *sarama.ConsumerMessage) lines.Record {
	var headers []lines.Header
	for _, header := range message.Headers {
		headers = append(headers, lines.Header{Name: string(header.Key), Value: header.Value})
	}
	return lines.Record{
		Partition: message.Partition, Offset: message.Offset, Timestamp: message.Timestamp.UnixMilli(),
		Key: message.Key, Value: message.Value, Headers: headers,
	}
}

func read(topic string, partition int32, count int, level string) error {
	config := sarama.NewConfig()
	if level == "read_committed" {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	consumer, err := sarama.NewConsumer(brokers, config)
	if err != nil {
		return err
	}
	defer consumer.Close()
	of, err := consumer.ConsumePartition(topic, partition, sarama.OffsetOldest)
	if err != nil {
		return err
	}
	defer of.Close()
	for range count {
		select {
		case message := <-of.Messages():
			lines.Reply(received(message))
		case <-time.After(patience):
			return fmt.Errorf("nothing more came")
		}
	}
	return nil
}

func times(topic string, timestamp int64) error {
	client, err := sarama.NewClient(brokers, sarama.NewConfig())
	if err != nil {
		return err
	}
	defer client.Close()
	partitions, err := client.Partitions(topic)
	if err != nil {
		return err
	}
	for _, partition := range partitions {
		offset, err := client.GetOffset(topic, partition, timestamp)
		if err != nil {
			return err
		}
		lines.Reply(partition, offset)
	}
	return nil
}

type member struct {
	name, topic string
	commits     bool
	group       sarama.ConsumerGroup
	stop        context.CancelFunc
	stopped     chan struct{}
	mutex       sync.Mutex
	session     sarama.ConsumerGroupSession
}

func join(name, group, topic string, commits bool) (*member, error) {
	config := sarama.NewConfig()
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Return.Errors = true
	made, err := sarama.NewConsumerGroup(brokers, group, config)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	m := &member{name: name, topic: topic, commits: commits, group: made, stop: stop, stopped: make(chan struct{})}
	go func() {
		for err := range made.Errors() {
			lines.Event(name, "error", err)
		}
	}()
	go func() {
		defer close(m.stopped)
		for ctx.Err() == nil {
			if err := made.Consume(ctx, []string{topic}, m); err != nil {
				lines.Event(name, "error", err)
			}
		}
	}()
	return m, nil
}

func (m *member) commit() error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.session.Commit()
	return nil
}

func (m *member) leave() error {
	m.stop() // ends the session: Cleanup is called
	<-m.stopped
	lines.Event(m.name, "leaving")
	return m.group.Close()
}

// Setup is called when the member was given its partitions.
func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.session = session
	lines.Event(m.name, "assigned", lines.Numbers(append([]int32{}, session.Claims()[m.topic]...)))
	return nil
}

// Cleanup is called when all of ConsumeClaim have returned.
func (m *member) Cleanup(session sarama.ConsumerGroupSession) error {
	if m.commits {
		session.Commit()
	}
	lines.Event(m.name, "revoked", lines.Numbers(append([]int32{}, session.Claims()[m.topic]...)))
	return nil
}

// ConsumeClaim is called for each partition.
func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			session.MarkMessage(message, "")
			lines.Event(m.name, "record", received(message))
		case <-session.Context().Done():
			return nil
		}
	}
}

func administer(admin sarama.ClusterAdmin, words []string) error {
	switch words[0] {
	case "create":
		return admin.CreateTopic(words[1], &sarama.TopicDetail{
			NumPartitions: int32(lines.Number(words[2])), ReplicationFactor: 1, ConfigEntries: lines.Pairs(words[3:]),
		}, false)
	case "topics":
		found, err := admin.ListTopics()
		for name := range found {
			lines.Reply(name)
		}
		return err
	case "describe":
		found, err := admin.DescribeTopics(words[1:])
		if err != nil {
			return err
		}
		for _, one := range found[0].Partitions {
			lines.Reply(one.ID, one.Leader, len(one.Replicas))
		}
		return nil
	case "delete":
		return admin.DeleteTopic(words[1])
	case "config":
		found, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: words[1]})
		for _, one := range found {
			lines.Reply(one.Name + "=" + one.Value)
		}
		return err
	case "alter":
		changes := map[string]sarama.IncrementalAlterConfigsEntry{}
		for name, value := range lines.Pairs(words[2:]) {
			changes[name] = sarama.IncrementalAlterConfigsEntry{
				Operation: sarama.IncrementalAlterConfigsOperationSet, Value: value,
			}
		}
		return admin.IncrementalAlterConfig(sarama.TopicResource, words[1], changes, false)
	case "groups":
		found, err := admin.ListConsumerGroups()
		for name := range found {
			lines.Reply(name)
		}
		return err
	case "group":
		found, err := admin.DescribeConsumerGroups(words[1:])
		if err != nil {
			return err
		}
		lines.Reply(found[0].State)
		for _, one := range found[0].Members {
			assignment, err := one.GetMemberAssignment()
			if err != nil {
				return err
			}
			for _, partitions := range assignment.Topics {
				lines.Reply(lines.Numbers(partitions))
			}
		}
		return nil
	}
	return fmt.Errorf("no such command: %s", words[0])
}
