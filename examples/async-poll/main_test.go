package main

func Example() {
	main()
	// Output:
	// poll 1: 202 Accepted
	// poll 2: 202 Accepted
	// poll 3: 429 Too Many Requests
	// poll 4: 502 Bad Gateway
	// poll 5: 202 Accepted
	// poll 6: 200 OK
	// report.pdf <nil>
}
