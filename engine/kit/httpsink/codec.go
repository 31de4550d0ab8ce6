package httpsink

import (
	nethttp "net/http"
	"net/url"

	"github.com/penstock-io/penstock/stream"
)

// Codec defines the requests and responses of one kind of receiver. Its methods may be called
// concurrently.
type Codec interface {
	// Format returns the properties that are the same for all requests. [New] calls it once.
	Format() Format
	// Append appends the body of a request with the records of b to dst. It omits dropped and
	// dead-lettered records. If a record cannot be encoded, Append omits it and calls refuse for
	// it.
	Append(dst []byte, b *stream.Batch, refuse func(i int, reason error)) []byte
	// Outcome returns the outcome of the request for b. This is r.Err, or a more precise outcome
	// from the response's body. The outcome may be that all or some records were delivered. If the
	// request or the response was incomplete, the sink does not trust such an outcome, and replaces
	// it by an error.
	Outcome(b *stream.Batch, r *Response) error
}

// Format holds the properties that are the same for all requests of a sink. Only ContentType is
// required.
type Format struct {
	Method      string            // empty means POST
	ContentType string            // Options.Headers may replace it
	Header      map[string]string // more headers, which Options.Headers may replace
	Path        string            // for endpoints without a path; empty means "/"
	Query       url.Values        // for endpoints that do not set these parameters

	// Keyed means that requests have an idempotency key.
	Keyed bool
	// Key returns the key of a batch. It is used if Keyed is set. If Key is nil, the key depends on
	// the route and on the spans of the batch, so it usually stays the same after a crash. Routes
	// have different keys, because they may send different records of the same spans to the same
	// receiver.
	Key func(*stream.Batch) (string, error)
	// KeyReadsRecords must be set if Key reads the records or fields of a batch.
	KeyReadsRecords bool
	// KeyParameter is the name of a query parameter in which the key is sent, in addition to the
	// header. Empty means only the header.
	KeyParameter string

	// Raw means that the body consists of the unchanged bytes of the records. If processors have
	// not changed the batch and compression is off, these bytes are sent without a copy.
	Raw bool
	// WholeResponse is for an Outcome that needs the complete body of a 2xx response. It is the
	// maximum size of this body in bytes; a longer body counts as incomplete. Zero means that
	// Outcome gets only the first 201 bytes, unless AnyStatus is set.
	WholeResponse int
	// AnyStatus means that a response with any status may report a delivery. Outcome then gets the
	// first 64 KiB of each response.
	AnyStatus bool
}

// Response is the response to a request.
type Response struct {
	Method, Endpoint string // the endpoint without user, password and query
	Status           int
	Header           nethttp.Header
	Body             []byte // the first bytes, or all of the body; see Format
	Cut              error  // why the body ended early; nil if it was read to its end or limit
	Err              error  // outcome by the status; nil: delivered
}
