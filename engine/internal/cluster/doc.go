// Package cluster is for several processes with the same pipelines. It makes one process at a time
// the owner of each pipeline. Each pipeline has a lease in a NATS key-value bucket. The bucket also
// stores the progress of routes.
//
// A [Lease] decides, without I/O and without a clock, when to read, take and renew the lease. A
// [LeaseHolder] sends the requests of a Lease to the bucket. A [Tenure] is a period in which a
// process owns a pipeline.
//
// A lease alone cannot exclude that two processes act as owners at the same time. First, it relies
// on clocks that run at about the same speed. Second, a process may check its lease, be suspended,
// and write when it resumes, although another process is now the owner. Epochs prevent such late
// writes. An epoch is a number that grows with each new owner. [Positions] saves progress only if
// no later epoch has been stored, and the ledgers of sinks have epochs of their own.
package cluster
