package httppoll

import (
	"fmt"
	nethttp "net/http"
)

// StatusError is a response without a page of records, because its status reports a failure.
type StatusError struct {
	Place  string // method, and URL without user and query
	Status int
	Cursor bool // the request named a page other than the first
}

// Error implements error. It includes the method, the URL, the status and a remedy.
func (e *StatusError) Error() string {
	text := fmt.Sprintf("%s: %d %s", e.Place, e.Status, nethttp.StatusText(e.Status))
	if remedy := e.remedy(); remedy != "" {
		text += ": " + remedy
	}
	return text
}

func (e *StatusError) remedy() string {
	switch e.Status {
	case nethttp.StatusUnauthorized:
		return "check basic, bearer or bearer_file"
	case nethttp.StatusForbidden:
		return "the credentials do not permit this; check them and the URL"
	case nethttp.StatusNotModified:
		return "the request was not conditional; a proxy may have changed it"
	}
	switch {
	case judge(e.Status, true, false) != misconfigured:
		return ""
	case e.Cursor && (e.Status == 400 || e.Status == 404 || e.Status == 410 || e.Status == 422):
		return "the server does not accept the page of the checkpoint; if the page has expired, " +
			"read from the beginning after `penstock checkpoint reset`"
	case e.Status == nethttp.StatusNotFound || e.Status == nethttp.StatusGone:
		return "check url"
	}
	return "check url and headers"
}
