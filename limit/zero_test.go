package limit

import (
	"fmt"
	"testing"
)

// TestZeroLimiter checks that a zero Limiter panics with the names of its constructors.
func TestZeroLimiter(t *testing.T) {
	for name, call := range map[string]func(){
		"Acquire":    func() { _, _ = new(Limiter).Acquire(t.Context()) },
		"TryAcquire": func() { new(Limiter).TryAcquire() },
		"Status":     func() { new(Limiter).Status() },
	} {
		want := "limit: zero Limiter; make one with limit.New or limit.Fixed"
		if got := panicOf(call); got != want {
			t.Errorf("%s: panic %q, want %q", name, got, want)
		}
	}
	Permit{}.Done(Success) // does nothing
}

func panicOf(call func()) (text string) {
	defer func() { text = fmt.Sprint(recover()) }()
	call()
	return ""
}
