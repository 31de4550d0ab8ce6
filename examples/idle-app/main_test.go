package main

func Example() {
	main()
	// Output:
	// 07:10  the user looks, the news are 24m8s old, the app asked every 1h0m0s
	// 07:20  the user looks, the news are 2m14s old, the app asked every 5m4s
	// 12:30  the user looks, the news are 25m16s old, the app asked every 1h0m0s
	// 19:00  the user looks, the news are 36m39s old, the app asked every 1h0m0s
	// 19:05  the user looks, the news are 4s old, the app asked every 3m23s
	// 19:15  the user looks, the news are 1m51s old, the app asked every 5m4s
	// 22:00  the user looks, the news are 54m9s old, the app asked every 57m40s
	// 74 fetches instead of 1440, and never news older than 54m9s
}
