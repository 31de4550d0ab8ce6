// Package cluster is for several processes with the same pipelines. It makes one process at a
// time the owner of each pipeline. Each pipeline has a lease in a NATS key-value bucket. The
// bucket also stores the progress of routes.
//
// A [Lease] decides, without I/O and without a clock, when to read, take and renew the lease. A
// [LeaseHolder] sends the requests of a Lease to the bucket.
//
// A lease alone does not exclude two owners. It relies on clocks that run at about the same
// speed. In addition, a process may be suspended after it has checked its lease, and write when
// another process is the owner. Epochs prevent such late writes. An epoch is a number that grows
// with each new owner. [Positions] saves progress only if no later epoch has been stored, and the
// ledgers of sinks have epochs of their own.
package cluster
