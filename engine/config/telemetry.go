package config

import (
	"errors"
	"fmt"
	"net/url"
	"time"
)

// Telemetry configures the push of metrics and traces to an OpenTelemetry receiver. Its key in a
// config is `telemetry`.
type Telemetry struct {
	// OTLP is the base URL of the receiver. Metrics and traces are pushed to /v1/metrics and
	// /v1/traces below it. Empty means that nothing is pushed.
	OTLP string `yaml:"otlp" required:"true" doc:"base URL of an OTLP/HTTP receiver, such as http://h:4318"`
	// Token is sent as a bearer token. Empty means none.
	Token string `yaml:"token" secret:"true" doc:"sent as a bearer token"`
	// Interval is the time between two pushes of metrics, 1s to 1h.
	Interval time.Duration `yaml:"interval" doc:"how often metrics are pushed, 1s to 1h"`
	// Traces is the share of batches that are traced, 0 to 1.
	Traces float64 `yaml:"traces" doc:"share of the batches that are traced, 0 to 1"`
}

// DefaultTelemetryInterval is the default of [Telemetry].Interval.
const DefaultTelemetryInterval = 30 * time.Second

// On reports whether anything is pushed.
func (t *Telemetry) On() bool { return t.OTLP != "" }

// Check returns an error if an option is not valid. The error does not contain the URL, which may
// contain a password.
func (t *Telemetry) Check() error {
	if !t.On() {
		return nil
	}
	u, err := url.Parse(t.OTLP)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return errors.New("otlp is not an http or https URL; write http://127.0.0.1:4318")
	case u.RawQuery != "" || u.Fragment != "":
		return errors.New("otlp has a query or fragment; write the base URL, " +
			"such as http://127.0.0.1:4318")
	case t.Interval < time.Second || t.Interval > time.Hour:
		return fmt.Errorf("interval is %v; it may be 1s to 1h", t.Interval)
	case !(t.Traces >= 0 && t.Traces <= 1):
		return fmt.Errorf("traces is %v; want a share, 0 to 1", t.Traces)
	}
	return nil
}
