package cli

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/internal/demo"
	"github.com/penstock-io/penstock/engine/status"
)

// TestProgressView checks the progress view: the settled share of the data as a bar, the speed, and
// the remaining time. If the source does not estimate its remaining data, there must be no bar.
func TestProgressView(t *testing.T) {
	at := func(elapsed time.Duration, delivered, left int64) engine.Status {
		return engine.Status{Seconds: elapsed.Seconds(), Routes: []status.Route{{
			Pipeline: "a", Name: "main", ReadRecords: delivered * 2, ReadBytes: delivered * 200,
			Delivered: delivered, LeftBytes: left,
			Workers: []status.Worker{
				{Name: "http://x/", State: "NORMAL", Window: 3.25, InFlight: 2, RoundTrip: 0.0015},
				{Name: "http://longer/", State: "OPEN", Reason: "failures in a row\x1b"},
			},
		}}}
	}
	var v progressView
	v.lines(at(time.Second, 10_000, 8_000_000))
	got := v.lines(at(3*time.Second, 20_000, 6_000_000)) // 1 MB in 2 s, 2 of 10 MB are settled
	want := []string{
		"a/main  █████░░░░░░░░░░░░░░░░░░░  20 %  20,000 records  0.50 MB/s  16s left",
		"  http://x/       NORMAL     window   3.3  in flight   2     1.5ms",
		`  http://longer/  OPEN       window   0.0  in flight   0         -  "failures in a row\x1b"`,
	}
	want[1] = strings.Replace(want[1], "3.3", "3.2", 1) // halves are rounded to the even digit
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := new(progressView).lines(at(time.Second, 10_000, -1))[0]; got != "a/main  10,000 records  - MB/s" {
		t.Errorf("where nobody knows what is left: %q", got)
	}
	many := at(time.Second, 10, 1000)
	for range mostRoutes {
		many.Routes = append(many.Routes, many.Routes[0])
	}
	if got := new(progressView).lines(many); len(got) != 1 || !strings.HasPrefix(got[0], "all 9 routes  ") {
		t.Errorf("of many routes: %q", got)
	}
}

// TestDemoPicture checks that the picture always fits a terminal of 80 columns, and leaves the last
// column free.
func TestDemoPicture(t *testing.T) {
	d := &play{fast: demo.NewReceiver(time.Second, nil), began: time.Now(),
		act: "the fast receiver was restarted"}
	worker := status.Worker{
		State:  "RECOVERING",
		Reason: "about 12.5 batches queued (grows below 11.4, shrinks above 12.7)", Window: 1000, InFlight: 1000,
		RoundTrip: 1.234567, Delivered: demoRecords,
	}
	lines := d.picture(&status.Route{Delivered: demoRecords, Workers: []status.Worker{worker, worker}})
	for _, line := range lines {
		if n := utf8.RuneCountInString(line); n > 79 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if all := strings.Join(lines, "\n"); !strings.Contains(all, "60,000") || strings.Contains(all, "grows below") {
		t.Errorf("the picture is\n%s", all)
	}
}

// TestScreen checks that other output appears above the drawn lines. Lines must be cut to the
// width of the terminal, and erased before they are redrawn.
func TestScreen(t *testing.T) {
	var out strings.Builder
	s := &screen{w: &out, width: func() int { return 10 }}
	s.draw([]string{"one", "a line that is too long"})
	if _, err := s.Write([]byte("log\n")); err != nil {
		t.Fatal(err)
	}
	s.draw([]string{"two"})
	s.draw(nil)
	const up2, up1 = "\x1b[A\x1b[A\r\x1b[J", "\x1b[A\r\x1b[J"
	want := "one\na line t…\n" + up2 + "log\none\na line t…\n" + up2 + "two\n" + up1
	if out.String() != want {
		t.Errorf("wrote %q, want %q", out.String(), want)
	}
}

// TestDemoLoss checks that a demo fails if a record has arrived at no receiver.
func TestDemoLoss(t *testing.T) {
	d := &play{tally: demo.NewTally(2)}
	if err := d.loss(); err == nil || err.Error() != "2 records were lost" {
		t.Errorf("loss = %v", err)
	}
}
