// Package nats reads and writes streams of NATS JetStream with github.com/nats-io/nats.go.
//
// The source has two forms. With `durable`, it shares a pull consumer with other processes and
// acknowledges each message when it is settled (delivered, dead-lettered or dropped): see
// sharedReader. Without `durable`, the source reads the stream in the order of its sequence
// numbers, and the engine keeps the position: see logReader.
//
// # Terms
//
// A sequence is the number of a message in its stream. A session is a reader with `durable`, from
// its opening to its end. A run is a partition of a session: a series of messages with ascending
// sequences. In-progress signals tell the server that a message is still being processed, so that
// the server does not redeliver it. A recreated stream or consumer was deleted, and created again
// under the same name.
package nats
