// Package testsize chooses between the short and the full form of a test that tries many seeds,
// states or crashes. go test runs the short forms, and make test-full the full ones.
package testsize

import "os"

// Of returns short, or full if the environment variable PENSTOCK_TESTS is "full".
func Of[T any](short, full T) T {
	if os.Getenv("PENSTOCK_TESTS") == "full" {
		return full
	}
	return short
}
