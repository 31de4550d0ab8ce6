package flow

import (
	"os"
	"testing"
	"time"
)

func TestTry(t *testing.T) {
	dir := os.Getenv("PENSTOCK_SCENARIOS")
	for _, n := range []string{"s01-saturated", "s02a-parallel-slots", "s13-cold-start", "s20-slow-and-wide", "s21-narrow", "s18-batches-of-5000"} {
		s, err := Load(dir + "/" + n + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		spec, err := Find("linear", "")
		if err != nil {
			t.Fatal(err)
		}
		from := time.Now()
		f, err := Run(s, spec, Options{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		b, _ := f.MarshalJSON()
		t.Logf("%s %v %s", n, time.Since(from), b)
	}
}
