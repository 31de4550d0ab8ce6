package pipeline

import (
	"errors"
	"fmt"
	"slices"
	"sync"
)

// maxFaults is how many different faults of a component are remembered; further ones are counted.
const maxFaults = 8

// faultLog remembers what a component has reported by stream.Host.Fault. It is safe for concurrent
// use.
type faultLog struct {
	mu   sync.Mutex
	errs []error
	more int
}

// add remembers err and reports whether it is new. Beyond maxFaults all are new.
func (f *faultLog) add(err error) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.ContainsFunc(f.errs, func(known error) bool { return known.Error() == err.Error() }) {
		return false
	}
	if len(f.errs) == maxFaults {
		f.more++
		return true
	}
	f.errs = append(f.errs, err)
	return true
}

// err joins the faults; nil if there were none.
func (f *faultLog) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := slices.Clone(f.errs)
	if f.more > 0 {
		all = append(all, fmt.Errorf("and %d more faults", f.more))
	}
	return errors.Join(all...)
}
