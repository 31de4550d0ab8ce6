package stream

import "github.com/penstock-io/penstock/flow"

// Aliases for the types of package flow that a worker uses to report an attempt. With them, a
// connector needs to import only this package. errors.As finds an outcome under either name.
type (
	// Item is a batch with its cost and size in the sender's units. See [flow.Item].
	Item = flow.Item[*Batch]
	// Report is a worker's information about itself in a response. See [flow.Report].
	Report = flow.Report
	// Limits bound one lane, regardless of its window. See [flow.Limits].
	Limits = flow.Limits
	// Throttled means that the worker is alive but full. See [flow.Throttled].
	Throttled = flow.Throttled
	// Rejected means that this data will never be accepted. See [flow.Rejected].
	Rejected = flow.Rejected
	// Misconfigured means that the fault is in the worker, not in the data; see
	// [flow.Misconfigured].
	Misconfigured = flow.Misconfigured
	// Died means that the worker died, or had to be killed, perhaps because of the batch; see
	// [flow.Died]. If only a piece of the batch is to blame, the field Died of a [Split] names it.
	Died = flow.Died
)

// ErrAbandoned is the cause of the end of an attempt's context if the attempt took too long; see
// [flow.ErrAbandoned].
var ErrAbandoned = flow.ErrAbandoned

// Headers of an advertised window; see docs/formats/advertised-window.md.
const (
	CreditHeader = flow.CreditHeader // of a response
	SenderHeader = flow.SenderHeader // of a request
)

// Origin is the content of [SenderHeader]. See [flow.Origin].
type Origin = flow.Origin

// ParseGrant reads the value of [CreditHeader] and reports whether it is valid; see
// [flow.ParseGrant].
func ParseGrant(value string) (Report, bool) { return flow.ParseGrant(value) }
