//penstock:pure

package kafka

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/commitmeta"
)

// topicPartition names a partition by its topic and number, as the client library does.
type topicPartition struct {
	topic string
	num   int32
}

func (t topicPartition) String() string { return t.topic + "/" + strconv.Itoa(int(t.num)) }

// parsePartition is the inverse of String.
func parsePartition(name string) (topicPartition, error) {
	topic, text, _ := strings.Cut(name, "/")
	num, err := strconv.ParseInt(text, 10, 32)
	if err != nil || topic == "" {
		return topicPartition{}, fmt.Errorf("%q is not a partition of a topic", name)
	}
	return topicPartition{topic, int32(num)}, nil
}

// partitionID returns the id of a partition: cluster, topic id and number. Brokers before Kafka 2.8
// have no topic ids, so the topic's name is used instead.
func partitionID(cluster string, topic string, id [16]byte, num int32) string {
	unique := base64.RawURLEncoding.EncodeToString(id[:])
	if id == [16]byte{} {
		unique = "name-" + digest(topic)
	}
	return clusterName(cluster) + "/" + unique + "/" + strconv.Itoa(int(num))
}

// clusterName returns the first part of the ids of a cluster's partitions.
func clusterName(cluster string) string {
	if len(cluster) > 64 || strings.ContainsFunc(cluster, func(c rune) bool { return !isTopicChar(c) }) {
		cluster = digest(cluster)
	}
	return cluster
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// committed is the group's offset of a partition, as the broker stores it.
type committed struct {
	offset   int64 // below 0 if there is none
	epoch    int32 // leader epoch; below 0 if not known
	metadata string
}

// bounds is the range of offsets that a partition's log holds. With isolation read_committed, end
// is the last stable offset.
type bounds struct{ start, end int64 }

// offerOf returns the position at which a partition resumes according to the group. c is the offset
// that the group has committed, with its metadata, and b has the ends of the log. The sink's ledger
// may override the position later. In the table, the first row that applies counts, and "error"
// means that the partition is not read.
//
//	committed offset                 position
//	none                             start or end of the log, according to the option start
//	with metadata for another topic  error, or the offset if it is the start of the log
//	below the start of the log       error, or the start, according to the option truncated
//	beyond the end of the log        error, or the start, according to the option truncated
//	with metadata for this topic     the offset, with the settled ranges in the metadata
//	without metadata of penstock     the offset: another program has set it
//
// If a topic was deleted and created again, a member that has not noticed this yet may commit its
// position in the deleted topic. If this position is the start of the new log, it is accepted,
// because no record is skipped.
//
// lost is the number of deleted offsets that are skipped.
func offerOf(part stream.Partition, c committed, b bounds,
	o *SourceOptions) (offer stream.PartitionOffer, lost int64, err error) {
	offer = stream.PartitionOffer{Part: part}
	if c.offset < 0 {
		offer.Watermark.Num = b.start
		if o.Start == startLatest {
			offer.Watermark.Num = b.end
		}
		return offer, 0, nil
	}
	offer.Origin, offer.Watermark.Num = stream.FromOthers, c.offset
	above, own := commitmeta.Decode(c.metadata, part.ID, c.offset)
	if own {
		offer.Origin, offer.Above = stream.FromCommit, above
	} else if commitmeta.IsOurs(c.metadata) && c.offset != b.start {
		const other = "partition %q is not read: the group's offset %d was stored for another " +
			"topic of that name, or changed " +
			"since; set it with kafka-consumer-groups --reset-offsets, and restart"
		return offer, 0, fmt.Errorf(other, part.Name, c.offset)
	}
	switch {
	case c.offset >= b.start && c.offset <= b.end:
		return offer, 0, nil
	case o.Truncated == truncatedEarliest:
		lost = max(0, b.start-c.offset)
		return restart(offer, b.start), lost, nil
	case c.offset < b.start:
		const gone = "partition %q is not read: %d offsets from %d on were deleted before they " +
			"were read; set truncated: earliest " +
			"to resume at %d, or reset the group's offset"
		return offer, 0, fmt.Errorf(gone, part.Name, b.start-c.offset, c.offset, b.start)
	}
	const beyond = "partition %q is not read: the group's offset is %d, but the log ends at %d: " +
		"it was truncated or created again; " +
		"set truncated: earliest to read it from its start, or reset the group's offset"
	return offer, 0, fmt.Errorf(beyond, part.Name, c.offset, b.end)
}

// restart moves an offer, the position at which a partition resumes, to the start of the log. There
// are two cases:
//
//   - The offer was below the start, because records were deleted. It keeps its settled ranges
//     above the start. If one of them includes the start, the position moves to the end of the
//     range.
//   - The offer was above the start, because the log was truncated or recreated. New records may
//     have the offsets of old ones, so the settled ranges are dropped.
func restart(offer stream.PartitionOffer, start int64) stream.PartitionOffer {
	if offer.Watermark.Num > start { // truncated: new records have the old offsets
		offer.Above, offer.Origin = nil, stream.FromStart
	}
	rest := progress{watermark: start}.with(offer.Above)
	offer.Watermark.Num, offer.Above = rest.watermark, rest.above
	return offer
}
