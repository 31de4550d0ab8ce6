package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// Limit bounds attempts of a route, whatever windows allow: the keys `flow.limit`, for all workers
// together, and `flow.worker_limit`, for each.
type Limit struct {
	// Rate is in records a second, repeats included. Zero, the default, means no limit.
	Rate PerSecond `yaml:"rate" doc:"records a second: 100/s, 6000/m or 50000/h"`
	// Bytes is in bytes a second, repeats included. Zero, the default, means no limit.
	Bytes BytesPerSecond `yaml:"bytes" doc:"bytes a second: 10MB/s or 600MiB/m"`
	// Concurrency is the number of batches in flight. Zero, the default, means no limit.
	Concurrency int `yaml:"concurrency" doc:"batches in flight"`
}

// PerSecond is a rate in a config: "100/s", "6000/m", "50000/h".
type PerSecond float64

// UnmarshalText reads a rate.
func (p *PerSecond) UnmarshalText(text []byte) error {
	amount, seconds, err := cutRate(string(text))
	if err != nil {
		return err
	}
	n, err := strconv.ParseFloat(amount, 64)
	if err != nil || !(n >= 0 && n <= 1e12) {
		return errRate(text)
	}
	*p = PerSecond(n / seconds)
	return nil
}

// MarshalText gives the rate per second.
func (p PerSecond) MarshalText() ([]byte, error) {
	return []byte(strconv.FormatFloat(float64(p), 'g', -1, 64) + "/s"), nil
}

// BytesPerSecond is a rate of bytes in a config: "10MB/s", "600MiB/m".
type BytesPerSecond float64

// UnmarshalText reads a rate.
func (b *BytesPerSecond) UnmarshalText(text []byte) error {
	amount, seconds, err := cutRate(string(text))
	if err != nil {
		return err
	}
	n, err := stream.ParseSize(amount)
	if err != nil {
		return errRate(text)
	}
	*b = BytesPerSecond(float64(n) / seconds)
	return nil
}

// MarshalText gives the rate per second.
func (b BytesPerSecond) MarshalText() ([]byte, error) {
	if whole := stream.Size(b); BytesPerSecond(whole) == b {
		return []byte(whole.String() + "/s"), nil
	}
	return []byte(strconv.FormatFloat(float64(b), 'g', -1, 64) + "B/s"), nil
}

// cutRate separates the amount of a rate from the seconds in which it may go.
func cutRate(text string) (amount string, seconds float64, err error) {
	amount, unit, _ := strings.Cut(text, "/")
	switch unit {
	case "s":
		seconds = 1
	case "m":
		seconds = time.Minute.Seconds()
	case "h":
		seconds = time.Hour.Seconds()
	default:
		return "", 0, errRate([]byte(text))
	}
	return strings.TrimSpace(amount), seconds, nil
}

func errRate(text []byte) error {
	return fmt.Errorf("%q is not a rate; write 100/s, 6000/m or 50000/h, and for bytes 10MB/s", text)
}
