// Package libs compares packages limit, breaker and rate with other libraries. It has only tests.
// TestServers runs the limiters against simulated servers in the virtual time of testing/synctest.
// The benchmarks measure the cost of one call that a limiter admits. The package is a module of its
// own, so that no other module requires the other libraries.
package libs
