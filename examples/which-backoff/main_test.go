package main

func Example() {
	main()
	// Output:
	//                     policy  away 50ms: wasted    late  away 5s: wasted    late  away 10m: wasted     late
	//                  fixed 1 s                1.0   995ms              4.9   520ms             588.2    517ms
	//              random to 2 s                1.0  1.005s              5.0   662ms             588.4    676ms
	//           fibonacci 100 ms                1.6    66ms              9.0  1.088s              32.0   2.048s
	//         exponential 100 ms                1.0    95ms              6.0  1.928s              28.0  22.168s
	//   exponential, full jitter                1.1    55ms              7.1  3.091s              47.9  10.394s
	//        recommended, 100 ms                1.0   106ms              7.2  1.202s              55.5    9.57s
}
