package main

import (
	"bytes"
	"fmt"
	"testing"
)

func TestRun(t *testing.T) {
	var got bytes.Buffer
	if err := run(t.Context(), &got); err != nil {
		t.Fatal(err)
	}
	want := ""
	for i := range 1 + behind {
		want += fmt.Sprintf("QUESTION %d\n", i)
	}
	// Only requests in progress at a crash are repeated: one request for each crash and one for
	// each answer.
	want += fmt.Sprintf("%d crashes, %d requests for %d answers\n", failures, failures+1+behind,
		1+behind)
	if got.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", got.String(), want)
	}
}
