package clickhouse

import (
	"strconv"
	"strings"

	"github.com/penstock-io/penstock/engine/kit/httpsink"
	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/stream"
)

// exceptionOutcome returns the outcome for the code of an exception, an error that ClickHouse
// reports in a response. known is false for codes without a case in this function. The HTTP status
// is not enough, because ClickHouse responds with 500 to many errors in the data or the config. The
// codes are defined in ClickHouse's src/Common/ErrorCodes.cpp.
func exceptionOutcome(code int) (o control.Outcome, known bool) {
	switch code {
	case 6, 26, 27, 38, 41, // cannot parse
		53, 69, 70, 72, // wrong type, out of bound, cannot convert
		117, 131, 321, 349, // incorrect data, too large, null
		469, 691: // a violated constraint, an unknown value of an enum
		return control.Rejected, true
	case 16, 36, 47, 60, // no such column or table
		62, 81, 115, 164, // syntax, setting
		192, 193, 194, // user and password
		497, 516: // no right, authentication failed
		return control.Misconfigured, true
	case 202, 241, 252, 439: // too many queries or parts, no memory
		return control.Throttled, true
	}
	return 0, false
}

// Outcome implements httpsink.Codec. An exception is an error that ClickHouse reports in the
// response, in a header or in the body. If exceptionOutcome knows its code, the exception takes
// precedence over the status. An exception may also be in the body of a response with status 200,
// because ClickHouse may have begun the response before the error. With an unknown code, such a
// response is an error, too.
func (c codec) Outcome(_ *stream.Batch, r *httpsink.Response) error {
	code, _ := strconv.Atoi(r.Header.Get("X-ClickHouse-Exception-Code"))
	if text, ok := strings.CutPrefix(string(r.Body), "Code: "); ok && code == 0 && r.Err == nil {
		number, _, _ := strings.Cut(text, ".")
		code, _ = strconv.Atoi(number)
	}
	if code == 0 {
		return r.Err
	}
	if outcome, known := exceptionOutcome(code); known {
		return r.As(outcome)
	}
	if r.Err == nil {
		return r.StatusError()
	}
	return r.Err
}
