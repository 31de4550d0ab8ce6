package stream

import (
	"errors"
	"fmt"
)

// ErrTakenOver is the error of a [TransactionalSink] after another process has loaded its ledger.
// Compare it with errors.Is. It ends the route, unless the processes of a cluster run the pipeline
// in turn.
var ErrTakenOver = errors.New("another process has taken over the ledger")

// ReopenError makes the engine close a sink and open a new one at once. A goroutine of the sink
// (Host.Go) returns it when the sink's output was replaced, for example by log rotation.
// ReopenError does not count as a failure of the route, and delivered batches stay delivered. There
// is one exception: while the route is still opening, it counts as a failure, and the route
// restarts with backoff.
type ReopenError struct {
	// ResumeToken tells the new sink where to continue in its output (SinkOptions.ResumeToken). It
	// is used in place of the checkpoint's token until a sink has opened with it.
	ResumeToken string
	Err         error // the reason
}

// Error returns the reason.
func (e *ReopenError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *ReopenError) Unwrap() error { return e.Err }

// RefusedError contains the reason for each record that a worker has refused, by the record's id
// ([Batch.AppendRecordID]). A sink uses it as the Err of a [Split] if the records in Refused have
// different reasons. The reasons are then stored in the dead letters.
type RefusedError struct {
	Reasons map[string]error
}

// Error returns the number of records and one reason.
func (e *RefusedError) Error() string {
	for _, err := range e.Reasons {
		if len(e.Reasons) == 1 {
			return err.Error()
		}
		return fmt.Sprintf("%d records were refused, one of them: %v", len(e.Reasons), err)
	}
	return "no record was refused"
}
