package main

func Example() {
	main()
	// Output:
	// poll 1: not ready
	// poll 2: not ready
	// poll 3: throttled
	// poll 4: server error
	// poll 5: not ready
	// poll 6: success
	// report.pdf <nil>
}
