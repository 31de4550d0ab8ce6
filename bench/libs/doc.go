// Package libs compares packages limit, breaker and rate with other libraries. It has only tests.
// TestServers runs concurrency limiters against simulated servers in the virtual time of
// testing/synctest. TestCost measures the cost of one admitted call, also for breaker and rate. The
// package is a module of its own, so that the module of Penstock's libraries does not require the
// other libraries.
package libs
