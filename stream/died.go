package stream

import "fmt"

// DiedError says that a worker died while it had a batch, or had to be killed because it hung: of the batch, maybe. A sink
// returns it, in any depth of wrapping, for the one batch that may be to blame, not for others that went down with it. It is
// a retryable outcome; but a batch of which several workers have died is cut, and the record that is left is buried.
type DiedError struct {
	// Culprit is the one record that the worker was at, as a batch of its own, which must be an item of the [Split]'s Rest that
	// is returned with this error; nil: the whole batch is to blame.
	Culprit *Batch
	Err     error
}

// Error says what the worker died of.
func (e *DiedError) Error() string { return fmt.Sprintf("the worker died: %v", e.Err) }

// Unwrap returns what it died of.
func (e *DiedError) Unwrap() error { return e.Err }

// ReopenError asks the engine to close a sink and to open a new one at once, because the sink's
// output was replaced. A goroutine of the sink (Host.Go) returns it. It is no failure: delivered
// batches stay delivered. Returned while the route is still opening it is a failure, after which
// the route restarts with backoff.
type ReopenError struct {
	// Place is the SinkOptions.Place of the new sink, instead of the checkpoint's, until one has
	// opened there.
	Place string
	Err   error // the reason
}

// Error returns the reason.
func (e *ReopenError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *ReopenError) Unwrap() error { return e.Err }

// RefusedError gives the reason of each record that a worker has refused, by its id ([Batch.AppendRecordID]). A sink puts it
// into the Err of a [Split] whose Refused records have reasons of their own: their dead letters then hold them.
type RefusedError struct {
	Reasons map[string]error
}

// Error counts them and shows one.
func (e *RefusedError) Error() string {
	for _, err := range e.Reasons {
		if len(e.Reasons) == 1 {
			return err.Error()
		}
		return fmt.Sprintf("%d records were refused, one of them: %v", len(e.Reasons), err)
	}
	return "no record was refused"
}
