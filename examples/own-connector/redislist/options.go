// Package redislist contains a source and a sink for lists in Redis. It uses only the public
// packages of Penstock. docs/connectors.md explains it step by step.
package redislist

import (
	"errors"
	"time"

	"github.com/penstock-io/penstock/stream"
	"github.com/redis/go-redis/v9"
)

// Options are the options of the source and of the sink.
type Options struct {
	URL string `yaml:"url" required:"true" secret:"true" doc:"redis://[user:password@]host:port/db"`
	Key string `yaml:"key" required:"true" doc:"the list"`
}

// Validate returns an error for the first invalid option.
func (o *Options) Validate() error {
	if o.URL == "" {
		return &stream.OptionError{Key: "url", Err: errors.New("missing, such as redis://127.0.0.1:6379/0")}
	}
	if _, err := redis.ParseURL(o.URL); err != nil {
		return &stream.OptionError{Key: "url", Err: errors.New("want redis://[user:password@]host:port/db")}
	}
	if o.Key == "" {
		return &stream.OptionError{Key: "key", Err: errors.New("missing: the name of a list")}
	}
	return nil
}

// timeout bounds each command.
const timeout = 5 * time.Second

// client returns a client of the Redis server. The client connects with its first command.
func (o *Options) client() (*redis.Client, error) {
	c, err := redis.ParseURL(o.URL)
	if err != nil {
		return nil, errors.New("url: want redis://[user:password@]host:port/db") // err may hold the password
	}
	c.ContextTimeoutEnabled = true
	c.ReadTimeout, c.WriteTimeout = timeout, timeout
	c.MaxRetries = -1 // the engine retries
	return redis.NewClient(c), nil
}
