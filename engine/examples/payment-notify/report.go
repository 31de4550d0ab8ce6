package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	nethttp "net/http"
	"time"

	"github.com/penstock-io/penstock/stream"
)

const (
	adminToken = "only-for-this-example"
	askEvery   = 10 * time.Millisecond
)

// ask asks the admin address for a delivery. It returns nil if there is none.
func (p *provider) ask(key string) (*stream.Delivery, error) {
	url := "http://" + p.admin + "/api/v1/deliveries/" + key
	req, err := nethttp.NewRequest(nethttp.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	res, err := nethttp.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	switch res.StatusCode {
	case nethttp.StatusOK:
	case nethttp.StatusNotFound:
		return nil, nil
	default:
		return nil, fmt.Errorf("%s: %s", req.URL, res.Status)
	}
	d := &stream.Delivery{}
	return d, json.NewDecoder(res.Body).Decode(d)
}

// await asks for a delivery repeatedly, until wanted returns true for it.
func (p *provider) await(key string, wanted func(stream.Delivery) bool) (stream.Delivery, error) {
	var last error
	for begun := time.Now(); time.Since(begun) < patience; time.Sleep(askEvery) {
		d, err := p.ask(key)
		if err == nil && d != nil && wanted(*d) {
			return *d, nil
		}
		last = err // penstock may be starting
	}
	err := fmt.Errorf("delivery %s is not as expected after %v", key, patience)
	return stream.Delivery{}, errors.Join(err, last)
}

// planned returns the planned time of an attempt on the schedule. The first attempt has n = 0.
func planned(n int) (at time.Duration) {
	for _, wait := range day[:min(n, len(day))] {
		at += wait
	}
	return at
}

// timeline prints the history of a delivery.
func timeline(out io.Writer, d stream.Delivery) {
	fmt.Fprintf(out, "\n%s: %s\n  attempt  planned    after  result\n", d.Key, d.State)
	for n, a := range d.Attempts {
		result := a.Detail
		if a.Event == "accept" {
			result = fmt.Sprintf("%d %s", a.Status, a.Body)
		}
		after := fmt.Sprintf("%d ms", a.At.Sub(d.Parked).Milliseconds())
		fmt.Fprintf(out, "  %7d  %-7s  %7s  %s\n", n+1, short(planned(n)), after, result)
	}
}

// short returns a duration without units that are zero.
func short(d time.Duration) string {
	h, m, s := d/time.Hour, d%time.Hour/time.Minute, d%time.Minute/time.Second
	switch {
	case h > 0:
		return fmt.Sprintf("%dh%02dm", h, m)
	case m > 0:
		return fmt.Sprintf("%dm", m)
	}
	return fmt.Sprintf("%ds", s)
}

// check returns an error if an order was not booked exactly once, if a delivery did not end as
// expected, or if an attempt was too early.
func check(deliveries []stream.Delivery, merchants []*merchant) error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, d := range deliveries {
		state, attempts := "done", 0
		switch d.Key {
		case unknownOrder:
			state, attempts = "dead", len(day)+1
		case "well-1":
			attempts = 2
		}
		if d.State != state || attempts > 0 && len(d.Attempts) != attempts {
			wrong("%s is %s after %d attempts", d.Key, d.State, len(d.Attempts))
		}
		for n, a := range d.Attempts {
			const rounding = time.Millisecond
			if early := compressed(planned(n)) - a.At.Sub(d.Parked); early > rounding {
				wrong("%s: attempt %d was %v early", d.Key, n+1, early)
			}
		}
	}
	for _, m := range merchants {
		rows, orders, err := m.booked()
		if err != nil {
			wrong("merchant %s: %w", m.name, err)
		} else if rows != m.orders || orders != m.orders {
			wrong("merchant %s has %d rows of %d orders, want each of %d once",
				m.name, rows, orders, m.orders)
		}
		if m.name == "dead" && m.received() <= m.orders {
			wrong("merchant dead got %d requests, none of which failed", m.received())
		}
	}
	return errors.Join(errs...)
}

// summary prints the requests and bookings of the merchants.
func summary(out io.Writer, merchants []*merchant) error {
	fmt.Fprintln(out, "\nmerchant  requests  orders booked")
	for _, m := range merchants {
		rows, _, err := m.booked()
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%-8s  %8d  %6d\n", m.name, m.received(), rows)
	}
	return nil
}
