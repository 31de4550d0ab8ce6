package config

import (
	"strings"
	"testing"
)

func TestRates(t *testing.T) {
	for text, want := range map[string]float64{"100/s": 100, "6000/m": 100, "7200 /h": 2,
		"0.5/s": 0.5, "0/s": 0} {
		var p PerSecond
		if err := p.UnmarshalText([]byte(text)); err != nil || float64(p) != want {
			t.Errorf("%q is %v, %v; want %v", text, p, err, want)
		}
		var again PerSecond
		if out, err := p.MarshalText(); err != nil || again.UnmarshalText(out) != nil ||
			again != p {
			t.Errorf("%q is written as %s, which is %v", text, out, again)
		}
	}
	for text, want := range map[string]float64{"10MB/s": 1e7, "60KiB/m": 1024, "1B/h": 1.0 / 3600} {
		var b BytesPerSecond
		if err := b.UnmarshalText([]byte(text)); err != nil || float64(b) != want {
			t.Errorf("%q is %v, %v; want %v", text, float64(b), err, want)
		}
	}
	for _, text := range []string{"", "100", "/s", "-1/s", "1/d", "NaN/s", "1e13/s", "MB/s",
		"1/s/s"} {
		var p PerSecond
		if p.UnmarshalText([]byte(text)) == nil {
			t.Errorf("%q is read as %v records a second", text, float64(p))
		}
		var b BytesPerSecond
		if b.UnmarshalText([]byte(text)) == nil {
			t.Errorf("%q is read as %v bytes a second", text, float64(b))
		}
	}
}

// TestLimitKeys checks that the limits may be keys of the route, or keys of flow as in older
// configs. A config must not have both.
func TestLimitKeys(t *testing.T) {
	const head = "pipelines:\n  a:\n    source: {spool_dir: {path: in}}\n    sink: drop\n"
	want := Limit{Rate: 100, Bytes: 1e7, Concurrency: 8}
	for _, keys := range []string{
		"    limit: {rate: 100/s, bytes: 10MB/s, concurrency: 8}\n" +
			"    worker_limit: {concurrency: 2}\n",
		"    flow:\n      limit: {rate: 100/s, bytes: 10MB/s, concurrency: 8}\n" +
			"      worker_limit: {concurrency: 2}\n",
	} {
		c, _ := mustLoad(t, head+keys)
		f := c.Pipelines[0].Routes[0].Flow
		if f.Limit != want || f.WorkerLimit != (Limit{Concurrency: 2}) {
			t.Errorf("%s is read as %+v and %+v", keys, f.Limit, f.WorkerLimit)
		}
	}
	const both = head + "    limit: {rate: 1/s}\n    flow: {limit: {rate: 2/s}}\n"
	_, _, err := loadText(t, both)
	if err == nil || !strings.Contains(err.Error(), "former name of limit") {
		t.Errorf("both names: %v", err)
	}
}
