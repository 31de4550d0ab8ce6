// Package intake holds data that a source has received and nobody can read again, such as the body
// of a request, until every route of the pipeline has settled it. The sources http_server, socket,
// syslog, stdin and exec are built on it.
//
//	Reserve(bytes) --> read the body --> Submit --> Done: every route has settled it
//	                                          \--> Withdraw: no route has read it
//
// # Bounds
//
// One limit in bytes covers reserved and held data. Reservations are granted in the order in which
// they were asked for, before a byte of the data is read, so that a full intake pushes back on the
// senders. A reservation for data of unknown length grows while it is read. One reservation at a
// time may grow beyond the limit, so that reservations which all have to grow cannot block each
// other.
//
// # Positions
//
// An intake is one partition with a random id. Data gets its position when the first route reads
// it, and not before: so data that no route has read can be withdrawn without a trace. Each route
// reads everything at its own pace. A route that fails reads its unsettled data again, cut into the
// same batches; after the end of the process nothing of the partition can be read, and the marks of
// earlier partitions are forgotten.
package intake
