// Package kafka holds the source that reads Kafka topics in a consumer group, and the sink that
// writes to topics.
//
// The group's committed offset is the watermark of a partition, and the commit's metadata holds the
// settled ranges above it (package commitmeta). A restart, or another member of the group, repeats
// the holes alone. A partition is identified by cluster, topic id and number, so that a topic that
// was deleted and created again is never taken for the one before it.
package kafka
