// Package faultlog keeps the faults that components report with stream.Host.Fault.
package faultlog

import (
	"errors"
	"fmt"
	"slices"
	"sync"
)

// most is the maximum number of distinct faults that are kept for a component. Further faults
// are only counted.
const most = 8

// Log keeps the faults of a component. It is safe for concurrent use.
type Log struct {
	mu   sync.Mutex
	errs []error
	more int
}

// Add records err and returns true if its text is new. Once it has recorded the maximum, Add only
// counts faults with other texts, and returns true for each of them, even if a text repeats.
func (f *Log) Add(err error) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.ContainsFunc(f.errs, func(known error) bool { return known.Error() == err.Error() }) {
		return false
	}
	if len(f.errs) == most {
		f.more++
		return true
	}
	f.errs = append(f.errs, err)
	return true
}

// Err returns the joined faults, or nil if there are none.
func (f *Log) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := slices.Clone(f.errs)
	if f.more > 0 {
		all = append(all, fmt.Errorf("and %d more faults", f.more))
	}
	return errors.Join(all...)
}

// Take is like Err, and removes the faults.
func (f *Log) Take() error {
	err := f.Err()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errs, f.more = nil, 0
	return err
}
