// Package compare has pairs of programs for the same task: one with Penstock's libraries, and one
// with other libraries. docs/coming-from-go.md shows them. The names of their declarations begin
// with ours or theirs. TestLines compares the numbers of lines. The package is a module of its own,
// so that the module of Penstock's libraries does not require the other libraries.
package compare

import (
	"context"
	"errors"
	"net/http"
)

// user is a value that the programs load.
type user struct{ Name string }

// errUnavailable is the failure of a service.
var errUnavailable = errors.New("service is unavailable")

// load loads a user from a service.
func load(context.Context) (user, error) { return user{}, errUnavailable }

// report is the result of a long operation.
type report struct{ Done bool }

// ask asks a service for the state of a long operation.
func ask(context.Context) (report, error) { return report{}, errUnavailable }

// cached returns a response from a cache.
func cached(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: req}, nil
}

// serve is a service within a program. It runs until ctx ends.
func serve(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
