package pipeline

import (
	"errors"
	"fmt"
	"slices"
	"sync"
)

// maxFaults is the maximum number of distinct faults that are kept for a component. Further faults
// are only counted.
const maxFaults = 8

// faultLog keeps the faults that a component has reported with stream.Host.Fault. It is safe for
// concurrent use.
type faultLog struct {
	mu   sync.Mutex
	errs []error
	more int
}

// add records err and returns true if its text is new. When maxFaults faults are kept, further
// faults with other texts are only counted. add then returns true for each of them, even if a text
// repeats.
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

// err returns the joined faults, or nil if there are none.
func (f *faultLog) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := slices.Clone(f.errs)
	if f.more > 0 {
		all = append(all, fmt.Errorf("and %d more faults", f.more))
	}
	return errors.Join(all...)
}
