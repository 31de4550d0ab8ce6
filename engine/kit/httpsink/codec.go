package httpsink

import (
	nethttp "net/http"
	"net/url"

	"github.com/penstock-io/penstock/stream"
)

// Codec is the format of one kind of receiver. Its methods are called concurrently.
type Codec interface {
	// Format returns the properties that all requests share. It is called once.
	Format() Format
	// Append appends the body of a request for the kept records of b. It calls refuse for each
	// record that cannot be encoded, and leaves that record out.
	Append(dst []byte, b *stream.Batch, refuse func(i int, reason error)) []byte
	// Outcome returns the outcome of the request for b: r.Err, or a more precise error that it
	// reads from the body. If the request or the response was incomplete, the sink replaces a full
	// or partial delivery by an error.
	Outcome(b *stream.Batch, r *Response) error
}

// Format holds the properties that all requests of a sink share. Only ContentType is needed.
type Format struct {
	Method      string            // empty means POST
	ContentType string            // Options.Headers may replace it
	Header      map[string]string // more headers, which Options.Headers may replace
	Path        string            // of endpoints without a path; empty means "/"
	Query       url.Values        // parameters of endpoints that do not set them

	// Key returns the idempotency key of a batch. Nil means that requests have none.
	Key func(*stream.Batch) (string, error)
	// KeyReadsRecords means that Key reads records or fields.
	KeyReadsRecords bool
	// KeyParameter is a query parameter that carries the key in addition to the header. Empty means
	// none.
	KeyParameter string

	// Raw reports that the body consists of the records' own bytes. They are sent without a copy
	// if the batch is unchanged.
	Raw bool
	// WholeResponse is the maximum size in bytes of the body of a 2xx, which Outcome needs
	// completely. A longer one counts as cut off. Zero means that Outcome gets the first 201 bytes.
	WholeResponse int
	// AnyStatus reports that a response of any status may be a delivery. Outcome then gets the
	// first 64 KiB of each response.
	AnyStatus bool
}

// BatchKey returns the id of a batch, which is the same after a crash. It is the usual Format.Key.
func BatchKey(b *stream.Batch) (string, error) { return b.ID(), nil }

// Response is the response to a request.
type Response struct {
	Method, Endpoint string // the endpoint without user, password and query
	Status           int
	Header           nethttp.Header
	Body             []byte // its beginning, or all of it; see Format
	Cut              error  // why the body ended early; nil if it was read to its end or limit
	Err              error  // the outcome by the status; nil means delivered
}
