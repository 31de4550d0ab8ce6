package compare

import (
	"net/http"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/retry"
)

// oursClient returns a client that makes up to 5 attempts.
func oursClient() *http.Client {
	return &http.Client{Transport: &retry.Transport{Options: retry.Options{
		MaxAttempts: 5,
		Policy:      backoff.Exponential(time.Second, 2, 30*time.Second).Full(),
	}}}
}

// theirsClient returns a client that makes up to 5 attempts, by go-retryablehttp.
func theirsClient() *http.Client {
	client := retryablehttp.NewClient()
	client.RetryMax = 4
	client.RetryWaitMin = time.Second
	client.RetryWaitMax = 30 * time.Second
	client.Logger = nil
	return client.StandardClient()
}
