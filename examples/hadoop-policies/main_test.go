package main

func Example() {
	main()
	// Output:
	// RETRY_FOREVER: 0s 0s 0s 0s 0s 0s ...
	// TRY_ONCE_THEN_FAIL: no retry
	// retryUpToMaximumCountWithFixedSleep(3, 1 s): 1s 1s 1s
	// retryUpToMaximumTimeWithFixedSleep(5 s, 1 s): 1s 1s 1s 1s 1s
	// retryUpToMaximumCountWithProportionalSleep(4, 1 s): 1s 2s 3s 4s
	// exponentialBackoffRetry(5, 1 s): 2.538s 4.465s 10.275s 20.745s 23.496s
	// MultipleLinearRandomRetry("1000,2,60000,1"): 1.269s 1.116s 1.284s 1m17.796s
	//
	// attempt 1 at node 0: operation is not supported in state standby: failover, wait: false
	// attempt 2 at node 1: operation is not supported in state standby: failover, wait: true
	// attempt 3 at node 0: name node is in safe mode: retry, wait: true
	// written: <nil>
}
