package flow

import (
	"errors"
	"reflect"

	"github.com/penstock-io/penstock/flow/control"
)

// outcomeOf returns the outcome for an error of Deliver.
func outcomeOf[T any](err error) control.Outcome {
	if err == nil {
		return control.Delivered
	}
	switch e := typed[T](err).(type) {
	case *Throttled:
		return control.Throttled
	case *Rejected:
		return control.Rejected
	case *Misconfigured:
		return control.Misconfigured
	case *Split[T]:
		if len(e.Done)+len(e.Rest)+len(e.Refused) > 0 {
			return control.Split
		}
	}
	return control.Retryable // an error without an outcome type, a Died, or an empty Split
}

// died reports whether the worker died of the whole value.
func died[T any](err error) bool {
	if _, ok := typed[T](err).(*Died); ok {
		return true
	}
	_, panicked := errors.AsType[*PanicError](err)
	return panicked
}

// diedAt returns the index of the piece in Rest that killed the worker, or -1 if none did.
func (e *Split[T]) diedAt() int {
	if e.Died > len(e.Rest) {
		return -1
	}
	return e.Died - 1
}

// typed returns the outermost error in err's tree that is one of the outcome types, or nil. It
// walks the tree in the order of errors.As. Calls of errors.As, one for each type, would not always
// find the outermost outcome: the first call would also find its type inside an outcome of another
// type.
func typed[T any](err error) error {
	for err != nil {
		switch e := err.(type) {
		case *Throttled, *Rejected, *Misconfigured, *Split[T], *Died:
			if !reflect.ValueOf(e).IsNil() {
				return err
			}
		case interface{ Unwrap() error }:
			err = e.Unwrap()
			continue
		case interface{ Unwrap() []error }:
			for _, one := range e.Unwrap() {
				if found := typed[T](one); found != nil {
					return found
				}
			}
		}
		return nil
	}
	return nil
}
