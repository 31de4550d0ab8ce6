// Package faults tests the penstock program under injected faults. Its tests start the real
// program, disturb its sources, sinks, disks and file descriptors, send it signals, and compare the
// records at the receiver with those of the source. The function cases in table_test.go lists all
// cases. Run them with `make faults` or `make faults-short`. See docs/faults.md for the kinds of
// cases and for how to repeat one case.
package faults
