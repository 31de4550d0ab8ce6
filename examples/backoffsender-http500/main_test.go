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
	// At a crash, only the request in progress is repeated. So the number of requests is the number
	// of crashes plus the number of answers.
	want += fmt.Sprintf("%d crashes, %d requests for %d answers\n", failures, failures+1+behind,
		1+behind)
	if got.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", got.String(), want)
	}
}
