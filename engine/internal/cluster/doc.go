// Package cluster lets several processes own one thing at a time, such as a pipeline, by leases in
// a key-value bucket of NATS, which also has the progress of routes.
//
// Lease is the pure state machine, and Keeper carries out its commands. A lease is a courtesy
// between processes whose clocks run at about the same speed: it keeps them from working at the
// same time. A process that is suspended between its look at the clock and a write can still write
// late. The fence against that is the epoch: Positions saves by compare-and-set and names the epoch
// of its owner, and ledgers have one of their own.
package cluster
