// Command secured: franz-go and sarama with TLS and SASL, for tests/interop/test_secured_listeners.py.
//
//	roundtrip LIBRARY ADDRESS TOPIC BYTES CA CERTIFICATE MECHANISM USER SECRET
//
// It sends a record, reads it, and answers with its value. CA and CERTIFICATE are files, or "-"; MECHANISM is "-"
// without SASL; SECRET is encoded: a password, or a token for OAUTHBEARER.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"interop/lines"
)

const patience = 10 * time.Second

type access struct {
	address, topic, mechanism, user, secret string
	tls                                     *tls.Config
}

func main() { lines.Serve(run) }

func run(words []string, records []lines.Record) error {
	if words[0] != "roundtrip" {
		return fmt.Errorf("unknown command %s", words[0])
	}
	with := access{address: words[2], topic: words[3], mechanism: words[7], user: words[8], secret: string(lines.Decode(words[9]))}
	if words[5] != "-" {
		pem, err := os.ReadFile(words[5])
		if err != nil {
			return err
		}
		with.tls = &tls.Config{RootCAs: x509.NewCertPool()}
		with.tls.RootCAs.AppendCertsFromPEM(pem)
		if words[6] != "-" {
			own, err := tls.LoadX509KeyPair(words[6], words[6])
			if err != nil {
				return err
			}
			with.tls.Certificates = []tls.Certificate{own}
		}
	}
	libraries := map[string]func(access, []byte) ([]byte, error){"franz-go": byFranz, "sarama": bySarama}
	value, err := libraries[words[1]](with, lines.Decode(words[4]))
	if err == nil {
		lines.Reply(lines.Encode(value))
	}
	return err
}

func byFranz(with access, value []byte) ([]byte, error) {
	options := []kgo.Opt{kgo.SeedBrokers(with.address), kgo.RecordPartitioner(kgo.ManualPartitioner())}
	if with.tls != nil {
		options = append(options, kgo.DialTLSConfig(with.tls))
	}
	mechanisms := map[string]sasl.Mechanism{
		"PLAIN":         plain.Auth{User: with.user, Pass: with.secret}.AsMechanism(),
		"SCRAM-SHA-256": scram.Auth{User: with.user, Pass: with.secret}.AsSha256Mechanism(),
		"SCRAM-SHA-512": scram.Auth{User: with.user, Pass: with.secret}.AsSha512Mechanism(),
		"OAUTHBEARER":   oauth.Auth{Token: with.secret}.AsMechanism(),
	}
	if mechanism, found := mechanisms[with.mechanism]; found {
		options = append(options, kgo.SASL(mechanism))
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	producer, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	sent, err := producer.ProduceSync(ctx, &kgo.Record{Topic: with.topic, Value: value}).First()
	if err != nil {
		return nil, err
	}
	from := map[string]map[int32]kgo.Offset{with.topic: {0: kgo.NewOffset().At(sent.Offset)}}
	consumer, err := kgo.NewClient(append(options, kgo.ConsumePartitions(from))...)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	fetched := consumer.PollRecords(ctx, 1)
	if err := fetched.Err(); err != nil {
		return nil, err
	}
	return fetched.Records()[0].Value, nil
}

type token string

func (t token) Token() (*sarama.AccessToken, error) { return &sarama.AccessToken{Token: string(t)}, nil }

func bySarama(with access, value []byte) ([]byte, error) {
	config := sarama.NewConfig()
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Net.TLS.Enable, config.Net.TLS.Config = with.tls != nil, with.tls
	if with.mechanism != "-" {
		config.Net.SASL.Enable = true
		config.Net.SASL.Mechanism = sarama.SASLMechanism(with.mechanism)
		config.Net.SASL.User, config.Net.SASL.Password = with.user, with.secret
		config.Net.SASL.TokenProvider = token(with.secret)
	}
	producer, err := sarama.NewSyncProducer([]string{with.address}, config)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	_, offset, err := producer.SendMessage(&sarama.ProducerMessage{Topic: with.topic, Value: sarama.ByteEncoder(value)})
	if err != nil {
		return nil, err
	}
	consumer, err := sarama.NewConsumer([]string{with.address}, config)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(with.topic, 0, offset)
	if err != nil {
		return nil, err
	}
	defer partition.Close()
	select {
	case record := <-partition.Messages():
		return record.Value, nil
	case <-time.After(patience):
		return nil, fmt.Errorf("no record at offset %d", offset)
	}
}
