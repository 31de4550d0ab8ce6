// Command which-backoff compares backoff policies for one client of a service that is away for 50
// ms, 5 seconds or 10 minutes. For each policy and outage it prints the average number of wasted
// attempts, and the average delay until the client notices that the service is back.
// docs/which-backoff.md describes the load on the service when a hundred clients come back at once.
package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"text/tabwriter"
	"time"

	"github.com/penstock-io/penstock/backoff"
)

const (
	attempt = 20 * time.Millisecond // duration of a failed attempt
	trials  = 1000
)

var policies = []struct {
	name   string
	policy backoff.Policy
}{
	{"fixed 1 s", backoff.Fixed(time.Second)},
	{"random to 2 s", backoff.Random(2 * time.Second)},
	{"fibonacci 100 ms", backoff.Fibonacci(100*time.Millisecond, 30*time.Second)},
	{"exponential 100 ms", backoff.Exponential(100*time.Millisecond, 2, 30*time.Second)},
	{"exponential, full jitter", backoff.Exponential(100*time.Millisecond, 2,
		30*time.Second).Full()},
	{"recommended, 100 ms", backoff.Recommended(100*time.Millisecond, 30*time.Second)},
}

func main() {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "policy\taway 50ms: wasted\tlate\taway 5s: wasted\tlate\taway 10m: "+
		"wasted\tlate\t")
	for _, p := range policies {
		fmt.Fprintf(w, "%s\t", p.name)
		for _, away := range []time.Duration{50 * time.Millisecond, 5 * time.Second,
			10 * time.Minute} {
			wasted, late := outage(p.policy, away)
			fmt.Fprintf(w, "%.1f\t%v\t", wasted, late)
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// outage returns two averages: the number of failed attempts while the service is away, and the
// time from its return to the client's first success. The client begins at a random moment in the
// first second of the outage.
func outage(p backoff.Policy, away time.Duration) (wasted float64, late time.Duration) {
	src := rand.NewPCG(1, 2)
	rng := rand.New(src)
	for range trials {
		at := time.Duration(rng.Int64N(int64(min(away, time.Second))))
		for _, wait := range backoff.Delays(p, src) {
			if at >= away {
				break
			}
			wasted++
			at += attempt + wait
		}
		late += at - away
	}
	return wasted / trials, (late / trials).Round(time.Millisecond)
}
