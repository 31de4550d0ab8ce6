package compat

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/backoff"
)

// TestSpecs checks that Parse reads each text that Specs lists, and that a key with its default
// value can be left out without changing the policy.
func TestSpecs(t *testing.T) {
	names := map[string]bool{}
	for _, spec := range Specs() {
		words := strings.Fields(spec)
		names[words[0]] = true
		p, err := Parse(spec)
		if err != nil || fmt.Sprint(p) != spec {
			t.Errorf("Parse(%q) = %v, %v", spec, p, err)
			continue
		}
		if _, err := backoff.Parse(spec); err == nil {
			t.Errorf("backoff.Parse(%q): no error, want that only compat knows it", spec)
		}
		for i := 1; i < len(words); i++ {
			key, _, _ := strings.Cut(words[i], "=")
			without := strings.Join(slices.Delete(slices.Clone(words), i, i+1), " ")
			switch q, err := Parse(without); {
			case err != nil && !strings.Contains(err.Error(), key+" is missing"):
				t.Errorf("Parse(%q): %v", without, err)
			case err == nil && !reflect.DeepEqual(q.(described).port, p.(described).port):
				t.Errorf("Parse(%q) is not Parse(%q)", without, spec)
			}
		}
	}
	for name := range readers {
		if !names[name] {
			t.Errorf("Specs does not list %q", name)
		}
	}
}

// allWrappers has every wrapper of sethvargo.
const allWrappers = "sethvargo base=1s wrappers=jitter:250ms,capped:0s,full_jitter,max_retries:4," +
	"jitter_percent:3,max_duration:1h"

func TestParse(t *testing.T) {
	for spec, want := range map[string]string{
		"flume":                             "flume",
		"aws max=8s attempts=3":             "aws max=8s attempts=3",
		"limit(pekko max=30s min=1s; 5)":    "pekko min=1s max=30s attempts=5",
		"sum(aws; fixed delay=1s)":          "sum(aws; fixed delay=1s)",
		"exponential base=1s":               "exponential base=1s factor=2",
		"jodis max_elapsed=1m":              "jodis max_elapsed=1m0s",
		"resilience4j max=9s random=1":      "resilience4j random=true max=9s",
		"polly type=exponential jitter=T":   "polly type=exponential jitter=true",
		"flume max=0s":                      "flume max=0s",
		"first_now(cenkalti multiplier=2.)": "first_now(cenkalti multiplier=2)",
		allWrappers:                         allWrappers,
	} {
		p, err := Parse(spec)
		if err != nil || fmt.Sprint(p) != want {
			t.Errorf("Parse(%q) = %v, %v; want %q", spec, p, err, want)
			continue
		}
		again, err := Parse(want)
		if err != nil || fmt.Sprint(again) != want || !reflect.DeepEqual(p, again) {
			t.Errorf("Parse(%q) = %v, %v; want what %q gives", want, again, err, spec)
		}
		first, _, _ := p.Next(backoff.State{}, rand.NewPCG(1, 2))
		if low, _, high := backoff.Bounds(p, 0); first < low || first > high {
			t.Errorf("Parse(%q): the first wait is %v, with bounds %v to %v", spec, first, low,
				high)
		}
	}
}

// TestParseSets checks that Parse uses the given settings, even if they are zero.
func TestParseSets(t *testing.T) {
	for spec, want := range map[string]backoff.Policy{
		"flume max=0s off=true":                       Flume{Off: true},
		"jpillora min=1s max=2s factor=3 jitter=true": Jpillora{1e9, 2e9, 3, true},
		"hadoop_fixed_time max_time=9s sleep=2s": HadoopFixedTime(9000, 2000,
			JavaMilliseconds),
		"hadoop_failover max_retries=0": HadoopFailover{nil, 15, 0, 500, 15000, false},
		"kubernetes_loop duration=1s steps=3 cap=9s": KubernetesWait{Duration: 1e9, Steps: 3,
			Cap: 9e9}.Loop(),
		"resilience4j max=9s": Resilience4j{5e8, 1.5, .5, false, 9e9, true, false},
		"sethvargo shape=fibonacci base=1s wrappers=capped:0s": Sethvargo{
			Shape: SethvargoFibonacci, Base: 1e9, Wrappers: []SethvargoWrapper{SethvargoCapped(0)},
		},
	} {
		p, err := Parse(spec)
		if err != nil {
			t.Error(err)
		} else if got := p.(described).port; !reflect.DeepEqual(got, want) {
			t.Errorf("Parse(%q) = %+v, want %+v", spec, got, want)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for spec, want := range map[string]string{
		"pekko min=1s max=1ms":                       "maxBackoff must be >= minBackoff",
		"pekko max=1s":                               "min is missing",
		"pekka max=1s":                               `unknown policy "pekka": want one of akka, aws, aws_2026, cenkalti`,
		"flume max=-1s":                              "max -1s is negative",
		"flume max=none":                             `max "none": want a duration`,
		"flume compat=true":                          `unknown key "compat": flume has max, off, attempts`,
		"flume off=maybe":                            `off "maybe": want true or false`,
		"polly type=square":                          `type "square": want one of constant, linear, exponential`,
		"polly max_retries=0":                        "MaxRetryAttempts must be between",
		"curator base=1s max_retries=-1":             `max_retries "-1": want a whole number from 0`,
		"hadoop_exponential sleep=1s":                "max_retries is missing",
		"hadoop_exponential sleep=1s max_retries=63": "maxRetries = 63 >= 63",
		"hadoop_multiple_linear_random":              "pairs is missing",
		"hadoop_multiple_linear_random pairs=1,2,3":  `pairs "1,2,3": want milliseconds and retries in turn`,
		"sethvargo base=1s wrappers=halved":          `unknown wrapper "halved": want one of capped, full_jitter, jitter, jitter_percent`,
		"sethvargo base=1s wrappers=jitter:x":        `"jitter:x": want a duration`,
		"sethvargo base=1s wrappers=max_retries:-1":  `"max_retries:-1": want a whole number`,
		"sethvargo base=0s":                          "base must be greater than 0",
		"grpc multiplier=x":                          `multiplier "x": want a number`,
	} {
		_, err := Parse(spec)
		if err == nil || !strings.Contains(err.Error(), want) ||
			!strings.HasPrefix(err.Error(), "backoff ") {
			t.Errorf("Parse(%q): %v; want %q", spec, err, want)
		}
	}
}
