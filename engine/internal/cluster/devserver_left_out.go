//go:build no_nats

package cluster

import (
	"context"
	"errors"
)

// DevServer does not exist in this binary.
type DevServer struct{}

var errLeftOut = errors.New("this binary was built with the tag no_nats")

// StartDevServer returns an error.
func StartDevServer(context.Context, string) (*DevServer, error) { return nil, errLeftOut }

// URL returns "".
func (*DevServer) URL() string { return "" }

// Publish returns an error.
func (*DevServer) Publish(context.Context) (int, error) { return 0, errLeftOut }

// Owners returns an error.
func (*DevServer) Owners(context.Context, string) (map[string]string, error) {
	return nil, errLeftOut
}

// Close does nothing.
func (*DevServer) Close() {}
