// Package lines is the protocol of tests/interop/driver.py, for programs in Go.
package lines

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
)

// Header of a record; a nil value is null.
type Header struct {
	Name  string
	Value []byte
}

// Record to send, or that was received.
type Record struct {
	Partition  int32
	Offset     int64
	Timestamp  int64
	Key, Value []byte
	Headers    []Header
}

var printing sync.Mutex

func show(line string) {
	printing.Lock()
	defer printing.Unlock()
	os.Stdout.WriteString(line + "\n")
}

func join(words []any) string {
	texts := make([]string, len(words))
	for i, word := range words {
		texts[i] = fmt.Sprint(word)
	}
	return strings.Join(texts, " ")
}

// Reply prints a line of the answer.
func Reply(words ...any) { show("> " + join(words)) }

// Event prints what happened to a member.
func Event(member string, words ...any) { show("@ " + member + " " + join(words)) }

// Encode gives the word for bytes.
func Encode(data []byte) string {
	if data == nil {
		return "-"
	}
	return "=" + base64.StdEncoding.EncodeToString(data)
}

// Decode gives the bytes of a word.
func Decode(word string) []byte {
	if word == "-" {
		return nil
	}
	data, err := base64.StdEncoding.DecodeString(word[1:])
	if err != nil {
		panic(err)
	}
	return data
}

// Number gives a number that the test has written.
func Number(word string) int64 {
	number, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		panic(err)
	}
	return number
}

// Numbers gives the word for partitions.
func Numbers(partitions []int32) string {
	if len(partitions) == 0 {
		return "-"
	}
	sort.Slice(partitions, func(i, j int) bool { return partitions[i] < partitions[j] })
	texts := make([]string, len(partitions))
	for i, partition := range partitions {
		texts[i] = fmt.Sprint(partition)
	}
	return strings.Join(texts, ",")
}

func (r Record) String() string {
	pairs := make([]string, len(r.Headers))
	for i, header := range r.Headers {
		pairs[i] = Encode([]byte(header.Name)) + ":" + Encode(header.Value)
	}
	headers := "-"
	if len(pairs) > 0 {
		headers = strings.Join(pairs, ",")
	}
	return fmt.Sprintf("%d %d %d %s %s %s", r.Partition, r.Offset, r.Timestamp, Encode(r.Key), Encode(r.Value), headers)
}

// Parse a record to send.
func Parse(line string) Record {
	words := strings.Split(line, " ")
	record := Record{
		Partition: int32(Number(words[0])), Timestamp: Number(words[1]),
		Key: Decode(words[2]), Value: Decode(words[3]),
	}
	if words[4] != "-" {
		for _, pair := range strings.Split(words[4], ",") {
			name, value, _ := strings.Cut(pair, ":")
			record.Headers = append(record.Headers, Header{string(Decode(name)), Decode(value)})
		}
	}
	return record
}

// Pairs gives NAME=VALUE words as a map.
func Pairs(words []string) map[string]*string {
	pairs := map[string]*string{}
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		pairs[name] = &value
	}
	return pairs
}

// Serve does what stdin says until it ends.
func Serve(run func(words []string, records []Record) error) {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		words := strings.Split(strings.TrimSuffix(line, "\n"), " ")
		var records []Record
		if words[0] == "produce" {
			for range Number(words[4]) {
				more, _ := in.ReadString('\n')
				records = append(records, Parse(strings.TrimSuffix(more, "\n")))
			}
		}
		if err := run(words, records); err != nil {
			show("failed " + strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			show("ok")
		}
	}
}
