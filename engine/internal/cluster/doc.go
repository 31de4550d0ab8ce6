// Package cluster makes sure that only one of several processes owns a resource, such as a
// pipeline, at a time. It uses leases in a NATS key-value bucket, which also stores the progress of
// routes.
//
// Lease is the state machine, without I/O and without a clock. LeaseHolder carries out the commands
// of a Lease. A lease is only advisory: it prevents processes from working at the same time only if
// their clocks run at about the same speed. A process that is suspended between checking the clock
// and a write can still write late. Epochs fence off such writes: Positions saves by
// compare-and-set with the epoch of its owner, and ledgers have their own epochs.
package cluster
