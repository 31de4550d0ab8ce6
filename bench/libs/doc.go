// Package libs compares packages limit, breaker and rate with other libraries. It contains only
// tests. It is a separate module, so that no other module requires the other libraries.
//
// TestServers runs the real limiters against simulated servers, in the virtual time of
// testing/synctest. The benchmarks measure the cost of one admitted call.
package libs
