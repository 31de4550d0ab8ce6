// Package libs measures packages limit, breaker and rate beside other libraries. It holds tests
// only and is a module of its own, so that the rivals enter no other.
//
// TestServers runs the real limiters against simulated servers, in the virtual time of
// testing/synctest. The benchmarks measure the cost of one call that passes.
package libs
