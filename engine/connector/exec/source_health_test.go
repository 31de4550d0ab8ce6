package exec

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestCommandHealth checks the times from which a command counts as failing and as working again.
func TestCommandHealth(t *testing.T) {
	struck := errors.New("struck")
	var h *commandHealth
	fail := func() { h.begin(); h.end(struck) }
	failLate := func() { h.begin(); time.Sleep(stableAfter); h.end(struck) }
	const wait = stableAfter
	again := func() { fail(); h.begin() }
	for name, c := range map[string]struct {
		do   func()
		want error
	}{
		"before the first run":        {func() {}, nil},
		"first run":                   {func() { h.begin() }, nil},
		"after a failure":             {fail, struck},
		"next run":                    {func() { again() }, struck},
		"next run, a record":          {func() { again(); h.wrote() }, nil},
		"next run, before 30 s":       {func() { again(); time.Sleep(wait - 1) }, struck},
		"next run, 30 s":              {func() { again(); time.Sleep(wait) }, nil},
		"after a long wait":           {func() { fail(); time.Sleep(wait); h.begin() }, struck},
		"status 0":                    {func() { again(); h.end(nil) }, nil},
		"failure after a record":      {func() { h.begin(); h.wrote(); h.end(struck) }, nil},
		"failure after 30 s":          {func() { failLate() }, nil},
		"failure, failure after 30 s": {func() { fail(); failLate() }, nil},
		"record, failures":            {func() { h.begin(); h.wrote(); fail() }, struck},
	} {
		synctest.Test(t, func(t *testing.T) {
			h = new(commandHealth)
			c.do()
			if got := h.failure(); !errors.Is(got, c.want) {
				t.Errorf("%s: %v, want %v", name, got, c.want)
			}
		})
	}
}
