// Package faults tests the penstock program under injected faults. Its tests start the real binary,
// disturb its sources, sinks, disks, descriptors and signals, and count the records at the
// receiver. The table of cases is in table_test.go. Run them with make faults or make faults-short;
// docs/faults.md describes the families of cases, and the way to replay one case.
package faults
