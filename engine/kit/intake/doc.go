// Package intake holds received data that cannot be read again, such as the body of a request,
// until every route of the pipeline has settled it. The sources http_server, socket, syslog, stdin
// and exec are built on it.
//
//	Reserve(bytes) --> read the body --> Submit --> Done: every route has settled it
//	                                          \--> Withdraw: no worker has got it
//
// # Bounds
//
// One limit in bytes covers reserved and held data. Reservations are granted in the order of the
// requests, before the data is read. So a full intake applies backpressure to the senders. A
// reservation for data of unknown length grows while the data is read. One reservation at a time
// may grow beyond the limit, so that several growing reservations cannot block each other.
//
// # Positions
//
// An intake is one partition with a random id. Data gets its position when the first route reads
// it, so that unread data can be withdrawn without leaving a gap. If a route has read data and not
// sent it yet, the route can withdraw this data. The route then passes over the positions of the
// data. Each route reads everything at its own pace. A route that restarts after a failure reads
// its unsettled data again, cut into the same batches. After the end of the process, the partition
// cannot be read any more, and its progress is deleted.
package intake
