// Package kafka holds the source that reads Kafka topics in a consumer group, and the sink that
// writes to topics.
//
// The offset that the group has committed is the watermark of a partition: all records below it are
// settled (delivered, dead-lettered or dropped). The metadata of the commit has the settled ranges
// above the watermark (package commitmeta). After a restart, or after a move of the partition to
// another member of the group, the records that are not settled according to the last commit are
// read again. A partition is identified by cluster, topic id and number. A recreated topic has
// another id, so it is not mistaken for the deleted topic of the same name. Brokers before Kafka
// 2.8 have no topic ids. For their topics, the name takes the place of the id.
//
// # Terms
//
// A route's reader is a member of the group. An assignment is the period in which a member owns a
// partition. It begins with an offer: the partition, and the position at which it can resume. The
// transactional sink uses the group's offsets as its ledger: it commits them in the transaction of
// the records. Its method Take makes this process the owner of a partition. After that, the
// transactions of earlier owners fail.
package kafka
