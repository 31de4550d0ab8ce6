package connectortest

import (
	"flag"
	"testing"
)

// waitingTests is the number of parallel tests that RunWaiting runs at the same time.
const waitingTests = "4"

// RunWaiting runs the tests of a package, and returns the exit code for TestMain. It is for tests
// that mostly wait for servers, processes or intervals: up to four of the parallel tests run at the
// same time, regardless of the number of processors. The flag -parallel of go test takes
// precedence.
func RunWaiting(m *testing.M) int {
	if err := flag.Set("test.parallel", waitingTests); err != nil {
		panic(err)
	}
	return m.Run()
}
