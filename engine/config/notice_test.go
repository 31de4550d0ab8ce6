package config

import (
	"fmt"
	"slices"
	"testing"
)

// TestFormerNamesAreNoticed checks that a config with former names of keys is valid. The field
// Notices of the config must have a notice for each of these names, with its position.
func TestFormerNamesAreNoticed(t *testing.T) {
	const text = "pipelines:\n  a:\n    source: {spool_dir: {path: in}}\n    sink: drop\n" +
		"    retry: {policy: fixed delay=1s}\n    flow: {limit: {rate: 2/s}, worker_limit: " +
		"{rate: 1/s}}\n"
	c, _, err := loadText(t, text)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range c.Notices {
		got = append(got, fmt.Sprintf("%d:%d: %s", n.Place.Line, n.Place.Column, n.Message))
	}
	want := []string{
		"5:21: retry.policy is the former name of retry.backoff",
		"6:19: flow.limit is the former name of limit",
		"6:46: flow.worker_limit is the former name of worker_limit",
	}
	if !slices.Equal(got, want) {
		t.Errorf("notices %q, want %q", got, want)
	}
	again, _, err := loadText(t, string(c.Plan()))
	if err != nil || len(again.Notices) > 0 {
		t.Errorf("the plan of that config has the notices %v, %v", again.Notices, err)
	}
}
