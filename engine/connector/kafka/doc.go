// Package kafka holds the source that reads Kafka topics in a consumer group, and the sink that
// writes to topics.
//
// The group's committed offset is the watermark of a partition. The commit's metadata holds the
// settled ranges above it (package commitmeta). A restart, or another member of the group, repeats
// only records above the watermark that are in none of these ranges. A partition is identified by
// cluster, topic id and number, so a recreated topic is never mistaken for the deleted topic of the
// same name.
package kafka
