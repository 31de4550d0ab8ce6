package connectortest

import (
	"flag"
	"testing"
)

// waitingTests is how many tests of RunWaiting run beside each other.
const waitingTests = "4"

// RunWaiting runs the tests of a package and returns the exit code for TestMain. Up to four of its
// parallel tests run beside each other, regardless of the number of processors, because they mostly
// wait for servers, processes or intervals. The flag -parallel of go test takes precedence.
func RunWaiting(m *testing.M) int {
	if err := flag.Set("test.parallel", waitingTests); err != nil {
		panic(err)
	}
	return m.Run()
}
