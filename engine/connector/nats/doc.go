// Package nats reads and writes streams of NATS JetStream with github.com/nats-io/nats.go.
//
// The source has two forms. With `durable`, it shares a pull consumer with other processes and
// acknowledges each message when it is settled: see sharedReader. Without it, the source reads the
// stream by sequence and the engine keeps the position: see logReader.
package nats
