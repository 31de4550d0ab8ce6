// Package intake holds received data in memory until every route of the pipeline has settled it
// (delivered, dead-lettered or dropped it). It is for sources that cannot read their data a second
// time. An example of such data is the body of an HTTP request. The sources http_server, otlp,
// socket, syslog, stdin and exec use it.
//
//	Reserve(bytes) --> read the body --> Submit --> Wait: every route has settled the data
//	                                          \--> Withdraw: no worker has received the data
//
// # Memory limit
//
// One limit bounds the bytes of an intake: those reserved for data that is not submitted yet, and
// those of submitted data that is not settled yet. A source of requests reserves the bytes before
// it reads a request. A source of streams calls [Intake.Add], which reserves the bytes after each
// read. If the intake is full, the source waits instead of reading more, and so its senders wait
// too (backpressure). Reservations are granted in the order of the calls.
//
// If the length of the data is not known in advance, the reservation grows while the data is read.
// One reservation at a time may grow beyond the limit. Otherwise two growing reservations could
// wait for each other forever.
//
// # Positions
//
// An intake is one partition with a random id. Only data with an id of its own (an identified
// request) is a partition of its own; see [Reservation.Identify]. A position is an offset in the
// bytes of a partition. Data gets its position when the first route reads it. Data that no route
// has read can therefore be withdrawn without a gap in the positions. A route can also withdraw
// data that it has read but not sent. It then skips the positions of this data.
//
// Each route reads all data at its own speed. A route that restarts after a failure reads its
// unsettled data again, cut into the same batches. When the process has ended, nothing can be read
// from the partition any more, and the next run of the pipeline deletes the routes' progress in it.
package intake
