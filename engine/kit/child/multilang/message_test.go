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

// TestEmitsOfOneTuple checks that a child is killed if the stored emits of one tuple need too much
// memory, and that emits are only counted if nobody reads them.
func TestEmitsOfOneTuple(t *testing.T) {
	const size, sizes = 4 << 20, 16 // together 64 MiB
	emit := func(anchor string) string {
		return `{"command":"emit","anchors":["` + anchor + `"],"need_task_ids":false,"tuple":["` +
			strings.Repeat("x", size) + `"]}`
	}
	for _, keep := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			counted := 0
			c := newConversation(t, multilang.Options{Component: "c", Task: 1, Pending: 10,
				Timeout: time.Minute, KeepEmits: keep, Count: func(string, int64) { counted++ }})
			c.greet()
			work := multilang.NewWork(2)
			for n := range 2 {
				if err := c.bolt.Give(t.Context(),
					multilang.Tuple{Values: []byte("[1]"), Of: work, Number: n}); err != nil {
					t.Fatal(err)
				}
			}
			c.heard()
			for range sizes - 1 {
				c.say(emit("1"))
			}
			c.say(emit("2"))
			if err := c.killed(); err != nil {
				t.Fatal(err)
			}
			c.say(emit("1"))
			err := c.killed()
			const reason = `for tuple "1", without an ack, need more than 64 MiB`
			if (err != nil) != keep || err != nil && !strings.Contains(err.Error(), reason) {
				t.Errorf("keep %v: killed for %v", keep, err)
			}
			c.end()
			<-work.Done
			want := 0
			if keep {
				want = sizes
			}
			if len(work.Emits) != want || counted != sizes+1 {
				t.Errorf("keep %v: %d emits kept, want %d, %d counted", keep, len(work.Emits),
					want, counted)
			}
		})
	}
}
