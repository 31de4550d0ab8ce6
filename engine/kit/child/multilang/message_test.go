package multilang_test

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/child/multilang"
)

// TestMisuse checks that a child that breaks the protocol is killed with an error that quotes its
// message, and that the tuple in progress is blamed.
func TestMisuse(t *testing.T) {
	for said, want := range map[string]string{
		`hello`:                              `"hello`,
		`[3]`:                                "want an object",
		`{"command":"ack","id":"77"}`:        `ack of tuple "77"`,
		`{"command":"emit","anchors":["9"]}`: `anchored to "9"`,
		`{"command":"dance"}`:                `command "dance"`,
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newConversation(t, multilang.Options{Component: "c", Task: 1, Pending: 10,
				Timeout: time.Minute})
			c.greet()
			work := multilang.NewWork(2)
			for n := range 2 {
				if err := c.bolt.Give(t.Context(),
					multilang.Tuple{Values: []byte("[1]"), Of: work, Number: n}); err != nil {
					t.Fatal(err)
				}
			}
			c.heard()
			c.say(said)
			if err := c.killed(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: killed for %v, want %s", said, err, want)
			}
			c.end()
			<-work.Done
			if work.Err == nil || work.Blamed != 0 {
				t.Errorf("%s: the work ends with %v, blamed %d", said, work.Err, work.Blamed)
			}
		})
	}
}

// TestPending checks that a child never has more than Pending unanswered tuples.
func TestPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConversation(t, multilang.Options{Component: "c", Task: 1, Pending: 2,
			Timeout: time.Minute})
		c.greet()
		work := multilang.NewWork(3)
		given := 0
		done := make(chan struct{})
		go func() {
			defer close(done)
			for n := range 3 {
				if err := c.bolt.Give(t.Context(),
					multilang.Tuple{Values: []byte("[1]"), Of: work, Number: n}); err != nil {
					t.Error(err)
				}
				given++
			}
		}()
		synctest.Wait()
		if given != 2 {
			t.Errorf("%d tuples were given ahead, want 2", given)
		}
		for _, id := range []string{"1", "2", "3"} {
			c.heard()
			c.say(`{"command":"ack","id":"` + id + `"}`)
		}
		<-done
		<-work.Done
		if work.Err != nil || given != 3 {
			t.Errorf("given %d, %v", given, work.Err)
		}
	})
}

func FuzzReader(f *testing.F) {
	f.Add("{\"pid\":\n1}\nend\n[1]\nend\r\n{\"command\":\"emit\",\"task\":3,\"tuple\":[1]}\nend\n")
	f.Fuzz(func(t *testing.T, stream string) {
		in := multilang.NewReader(strings.NewReader(stream))
		for {
			text, err := in.Next()
			if err == io.EOF {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for l := range strings.Lines(string(text)) {
				if l == "end\n" || l == "end\r\n" {
					t.Errorf("the message %q holds its own end", text)
				}
			}
			if m, err := multilang.Parse(text); err == nil {
				_ = m.NeedsTaskIDs()
			}
		}
	})
}
