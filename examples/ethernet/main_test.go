package main

func Example() {
	main()
	// Output:
	// slot  0: A, B, C collide
	//          A waits 0 of at most 1 slots
	//          B waits 0 of at most 1 slots
	//          C waits 1 of at most 1 slots
	// slot  1: A, B collide
	//          A waits 3 of at most 3 slots
	//          B waits 1 of at most 3 slots
	// slot  2: C sends
	// slot  3: B sends
	// slot  5: A sends
	//
	// 802.3, which gives up at the 16th collision: 15 waits, 183.07ms on average, 366.13ms at most
	// with 16 retries, as it is often told: 16 waits, 209.25ms on average, 418.51ms at most
}
