package result

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheFormOfALine(t *testing.T) {
	var out strings.Builder
	l := Line{Workload: "w1", Program: "penstock", MBPerS: 4321, Limit: "go_count", OfLimit: .51,
		CPUPerGB: .2, RSSMiB: 40}
	if err := l.Write(&out); err != nil {
		t.Fatal(err)
	}
	want := `{"workload":"w1","program":"penstock","mb_per_s":4321,"limit":"go_count","of_limit":0.51,"cpu_s_per_gb":0.2,"rss_mb":40,` +
		`"lost":0,"repeated":0}` + "\n"
	if out.String() != want {
		t.Errorf("got  %swant %s", out.String(), want)
	}
	out.Reset()
	l.LimitMBPerS, l.LimitCPUPerGB = 8765, .11
	want = strings.TrimSuffix(want, "}\n") +
		`,"limit_mb_per_s":8765,"limit_cpu_s_per_gb":0.11}` + "\n"
	if err := l.Write(&out); err != nil || out.String() != want {
		t.Errorf("with a limit: got  %swant %s, %v", out.String(), want, err)
	}
}

func TestTheLastLineOfAProgramCounts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results")
	for _, speed := range []float64{1, 2} {
		err := Replace(path, []Entry{
			{Line: Line{Workload: "w1", Program: "penstock", MBPerS: speed}},
			{Line: Line{Workload: "w2", Program: "penstock", MBPerS: 10 * speed}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	all, err := Read(path)
	if err != nil || len(all) != 2 || all[0].MBPerS != 2 || all[1].MBPerS != 20 {
		t.Errorf("%+v, %v", all, err)
	}
	if err := os.WriteFile(path, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil {
		t.Error("half a line is no error")
	}
}

// TestMedian checks that the median of two pairs is neither the better nor the worse one.
func TestMedian(t *testing.T) {
	for _, c := range []struct {
		of   []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{3, 1}, 2}, {[]float64{9, 1, 2}, 2},
		{[]float64{4, 1, 100, 2}, 3}} {
		if got := Median(c.of); got != c.want {
			t.Errorf("the median of %v is %v, want %v", c.of, got, c.want)
		}
	}
}

func TestGate(t *testing.T) {
	kept := Kept{"w1": .5, "w2": .5, "w3": .5, "w4": .5}
	fallen := kept.Fallen([]Line{
		{Workload: "w1", Program: "penstock", OfLimit: .41},
		{Workload: "w2", Program: "penstock", OfLimit: .39},
		{Workload: "w3", Program: "penstock", OfLimit: .9},
		{Workload: "w3", Program: "other", OfLimit: .1},
	})
	if len(fallen) != 2 || !strings.HasPrefix(fallen[0], "w2 reaches 0.390") ||
		fallen[1] != "w4 was not measured" {
		t.Errorf("%q", fallen)
	}
}

func TestRatiosOfMachines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ratios.json")
	if err := (Ratios{"a": {"w1": .5, "w2": .9}, "b": {"w1": .7}}).Write(path); err != nil {
		t.Fatal(err)
	}
	if err := (Kept{"w2": .8, "w3": 2}).Write(path, "c"); err != nil {
		t.Fatal(err)
	}
	r, err := ReadRatios(path)
	if err != nil {
		t.Fatal(err)
	}
	for machine, want := range map[string]string{
		"a":       "map[w1:0.5 w2:0.9 w3:2] [w3]",
		"b":       "map[w1:0.7 w2:0.8 w3:2] [w2 w3]",
		"c":       "map[w1:0.5 w2:0.8 w3:2] [w1]",
		"another": "map[w1:0.5 w2:0.8 w3:2] [w1 w2 w3]",
	} {
		kept, others := r.Of(machine)
		if got := fmt.Sprint(map[string]float64(kept), others); got != want {
			t.Errorf("%s: %s, want %s", machine, got, want)
		}
	}
}
