package flow

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-io/penstock/internal/httpfield"
)

// maxRetryAfter is the longest Retry-After that HTTPOutcome returns. A Sender waits for at most
// about 5 minutes, even if the delay is longer.
const maxRetryAfter = time.Hour

// HTTPOutcome returns the outcome of an HTTP request as a Worker reports it, by the status of the
// response:
//
//	2xx                       nil: delivered
//	429; 503 with Retry-After *Throttled, for the time in Retry-After, at most an hour
//	408, 425, other 5xx       an error of no special type: the value is sent again
//	400, 413, 422             *Rejected: this value will never be accepted
//	all others                *Misconfigured, such as 401, 403, 404, 405 and redirects: the lane is at fault
//
// If a receiver responds with 409 to a value that it has already stored, handle that status before
// calling HTTPOutcome. HTTPOutcome does not read the body. The caller closes it, and drains it if
// connections are to be reused.
func HTTPOutcome(resp *http.Response) error {
	code := resp.StatusCode
	if code >= 200 && code < 300 {
		return nil
	}
	err := statusError(resp)
	retryAfter := strings.TrimSpace(resp.Header.Get("Retry-After"))
	switch {
	case code == 429, code == 503 && retryAfter != "":
		after, _ := httpfield.RetryAfter(retryAfter, time.Now()) // 0 if it is invalid
		return &Throttled{After: min(after, maxRetryAfter), Err: err}
	case code >= 500 && code < 600, code == 408, code == 425:
		return err
	case code == 400, code == 413, code == 422:
		return &Rejected{Err: err}
	}
	return &Misconfigured{Err: err}
}

// statusError returns an error such as "POST http://host/path: 503 Service Unavailable".
func statusError(resp *http.Response) error {
	status := strings.TrimSpace(strconv.Itoa(resp.StatusCode) + " " +
		http.StatusText(resp.StatusCode))
	if resp.Request == nil || resp.Request.URL == nil {
		return fmt.Errorf("answered %s", status)
	}
	method := resp.Request.Method
	if method == "" {
		method = http.MethodGet
	}
	return fmt.Errorf("%s %s: %s", method, resp.Request.URL.Redacted(), status)
}
