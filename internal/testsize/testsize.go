// Package testsize selects the short or the full form of a test that tries many seeds, states or
// crashes. go test runs the short form, and make test-full the full form.
package testsize

import "os"

// Of returns short, or full if the environment variable PENSTOCK_TESTS is "full".
func Of[T any](short, full T) T {
	if os.Getenv("PENSTOCK_TESTS") == "full" {
		return full
	}
	return short
}
