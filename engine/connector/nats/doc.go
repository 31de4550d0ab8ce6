// Package nats reads and writes streams of NATS JetStream with github.com/nats-io/nats.go.
//
// The source has two forms. With `durable`, it shares a pull consumer with other processes and
// acknowledges each message when it is settled (delivered, dead-lettered or dropped): see
// sharedReader. Without `durable`, the source reads the stream in the order of its sequence
// numbers, and the engine keeps the position: see logReader.
package nats
