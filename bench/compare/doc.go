// Package compare holds programs written with Penstock's libraries beside the same programs written
// with others, for docs/coming-from-go.md. It is a separate module, so that no other module
// requires the other libraries.
//
// The declarations of a program begin with ours or theirs and the program's name. TestLines
// compares their lines.
package compare

import (
	"context"
	"errors"
	"net/http"
)

// user is a value that programs load.
type user struct{ Name string }

// errUnavailable is a failure of a service.
var errUnavailable = errors.New("service is unavailable")

// load loads a user from a service.
func load(context.Context) (user, error) { return user{}, errUnavailable }

// report is the result of a long operation.
type report struct{ Done bool }

// ask asks for the state of a long operation.
func ask(context.Context) (report, error) { return report{}, errUnavailable }

// cached returns a response from a cache.
func cached(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: req}, nil
}

// serve is a service of a program, which runs until ctx ends.
func serve(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
