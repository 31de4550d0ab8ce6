// Package faults tests the penstock program under injected faults. Its tests start the real
// program, disturb its sources, sinks, disks, descriptors and signals, and compare the records at
// the receiver with those of the source. The cases are in table_test.go. Run them with `make
// faults` or `make faults-short`. See docs/faults.md for the kinds of cases and for how to repeat
// one case.
package faults
