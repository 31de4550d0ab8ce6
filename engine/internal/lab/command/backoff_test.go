package command

import (
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/backoff/compat"
)

// lines decodes each line of out as JSON. A field that T does not have is an error.
func lines[T any](t *testing.T, out string) (list []T) {
	t.Helper()
	for line := range strings.Lines(out) {
		d := json.NewDecoder(strings.NewReader(line))
		d.DisallowUnknownFields()
		var v T
		if err := d.Decode(&v); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		list = append(list, v)
	}
	return list
}

func TestBackoffJSON(t *testing.T) {
	got := try(t, "backoff", "exponential base=250ms factor=2 max=30s jitter=full", "--n", "9",
		"--json")
	type step struct {
		N            int   `json:"n"`
		Lowest       int64 `json:"lowest_ns"`
		Mean         int64 `json:"mean_ns"`
		Highest      int64 `json:"highest_ns"`
		Drawn        int64 `json:"drawn_ns"`
		TotalLowest  int64 `json:"total_lowest_ns"`
		TotalMean    int64 `json:"total_mean_ns"`
		TotalHighest int64 `json:"total_highest_ns"`
		TotalDrawn   int64 `json:"total_drawn_ns"`
	}
	type result struct {
		Spec  string `json:"spec"`
		Steps []step `json:"steps"`
	}
	list := lines[result](t, got.out)
	if got.code != exitOK || len(list) != 1 || len(list[0].Steps) != 9 ||
		list[0].Spec != "exponential base=250ms factor=2 max=30s jitter=full" {
		t.Fatalf("%+v", got)
	}
	var total, drawn int64
	for i, s := range list[0].Steps {
		high := min(int64(250*time.Millisecond)<<i, int64(30*time.Second))
		total, drawn = total+s.Mean, drawn+s.Drawn
		if s.N != i || s.Lowest != 0 || s.Highest != high || s.Mean != high/2 || s.Drawn < 0 ||
			s.Drawn > high || s.TotalMean != total ||
			s.TotalDrawn != drawn {
			t.Errorf("step %d: %+v", i, s)
		}
	}
	again := try(t, "backoff", "exponential", "base=250ms", "factor=2", "max=30s", "jitter=full",
		"--n", "9", "--json")
	other := try(t, "backoff", "exponential", "base=250ms", "factor=2", "max=30s", "jitter=full",
		"--n", "9", "--json", "--seed", "2")
	if again.out != got.out || other.out == got.out {
		t.Error("the same words and seed must give the same line, another seed another one")
	}
}

// TestBackoffHelp parses every policy that the help shows.
func TestBackoffHelp(t *testing.T) {
	checked := 0
	for line := range strings.Lines(newBackoffCommand().Long) {
		spec, ok := strings.CutPrefix(line, "    ")
		if !ok {
			continue
		}
		checked++
		if _, err := compat.Parse(spec); err != nil {
			t.Error(err)
		}
	}
	if want := len(compat.Specs()) + 17; checked != want {
		t.Errorf("%d policies in the help, want %d", checked, want)
	}
	if got := try(t, "backoff", "pekko min=1s max=4s random_factor=0"); got.code != exitOK ||
		!strings.Contains(got.out, "4s") {
		t.Errorf("code %d: %s%s", got.code, got.out, got.stderr)
	}
}

func TestBackoffText(t *testing.T) {
	got := try(t, "backoff", "slotted slot=51.2us max_exponent=10 attempts=16")
	if got.code != exitOK || !strings.Contains(got.out, "366.13ms") ||
		!strings.Contains(got.out, "183.07ms") ||
		!strings.Contains(got.out, "gives up after 15 waits, that is 16 attempts") {
		t.Errorf("%s%s", got.out, got.stderr)
	}
	if got := try(t, "backoff", "slotted slot=51.2us attempts=17"); !strings.Contains(got.out,
		"418.51ms") {
		t.Errorf("%s", got.out)
	}
}

func TestBackoffRefusals(t *testing.T) {
	t.Chdir(t.TempDir())
	for want, args := range map[string][]string{
		"needs a policy":          {"backoff"},
		`unknown policy "expo`:    {"backoff", "expo base=1s"},
		"bases":                   {"backoff", "exponential bases=1s"},
		"base is given twice":     {"backoff", "exponential base=1s base=2s"},
		"--n: 0":                  {"backoff", "fixed delay=1s", "--n", "0"},
		"ends in .svg or .png":    {"backoff", "fixed delay=1s", "--plot", "x.gif"},
		"-1s":                     {"backoff", "fixed delay=-1s"},
		`policy "best"`:           {"sim", "backoff", "--policy", "best"},
		"--clients: 0":            {"sim", "backoff", "--clients", "0"},
		"--trials: 0":             {"sim", "backoff", "--trials", "0"},
		"--outage: -1s":           {"sim", "backoff", "--outage", "-1s"},
		"stations 0":              {"sim", "csma", "--stations", "0"},
		"--frames: 0":             {"sim", "csma", "--frames", "0"},
		"--attempts is 0":         {"sim", "csma", "--attempts", "0"},
		"did you mean \"sim csma": {"sim", "cmsa"},
	} {
		if got := try(t, args...); got.code != exitUsage || !strings.Contains(got.stderr, want) ||
			got.out != "" {
			t.Errorf("%q: code %d, %q, %q; want code 2 and %q", args, got.code, got.out,
				got.stderr, want)
		}
	}
	if got := try(t, "backoff", "fixed delay=1s", "--plot",
		"no/such/folder.svg"); got.code != exitUnfinished || got.stderr == "" {
		t.Errorf("a plot that cannot be written: %+v", got)
	}
}

func TestPlots(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, args := range map[string][]string{
		"a.svg": {"backoff", "exponential base=1s max=30s jitter=full"},
		"a.png": {"backoff", "exponential base=1s max=30s jitter=full"},
		"b.svg": {"sim", "backoff", "--clients", "5,10", "--trials", "2"},
		"c.svg": {"sim", "backoff", "--outage", "50ms,1m", "--clients", "3", "--trials", "1",
			"--policy", "full", "--policy", "fixed delay=1s"},
		"d.SVG": {"sim", "csma", "--stations", "2,4", "--frames", "50"},
	} {
		got := try(t, append(args, "--plot", name)...)
		data, err := os.ReadFile(name)
		if got.code != exitOK || err != nil || len(data) < 1000 {
			t.Errorf("%q: %+v, %d bytes, %v", args, got, len(data), err)
		}
		if form := map[bool]string{true: "\x89PNG",
			false: "<svg"}[name == "a.png"]; !strings.HasPrefix(string(data), form) {
			t.Errorf("%s begins with %.10q", name, data)
		}
	}
}

func TestSimBackoffJSON(t *testing.T) {
	type result struct {
		Policy   string  `json:"policy"`
		Clients  int     `json:"clients"`
		TimeMs   float64 `json:"time_ms"`
		TimeSDMs float64 `json:"time_sd_ms"`
		Calls    float64 `json:"calls"`
		CallsSD  float64 `json:"calls_sd"`
	}
	args := []string{"sim", "backoff", "--clients", "50,120,190", "--policy",
		"exponential base=10ms factor=2 max=2s jitter=full",
		"--policy", "recommended", "--trials", "100", "--seed", "1", "--json"}
	got := try(t, args...)
	list := lines[result](t, got.out)
	if got.code != exitOK || len(list) != 6 {
		t.Fatalf("%+v", got)
	}
	// the recommended policy beats full jitter on both axes
	for i, clients := range []int{50, 120, 190} {
		full, recommended := list[i], list[i+3]
		if full.Clients != clients || recommended.Clients != clients || full.Policy != args[5] ||
			recommended.Policy != "recommended" {
			t.Errorf("%+v", list)
		}
		if recommended.TimeMs >= full.TimeMs || recommended.Calls >= full.Calls ||
			full.TimeSDMs <= 0 || full.CallsSD <= 0 {
			t.Errorf("%d clients: recommended %+v against full jitter %+v", clients,
				recommended, full)
		}
	}
	if again := try(t, args...); again.out != got.out {
		t.Error("the same seed gave other figures")
	}
}

func TestSimOutageJSON(t *testing.T) {
	got := try(t, "sim", "backoff", "--outage", "50ms,5s", "--clients", "1,100", "--trials", "3",
		"--json",
		"--policy", "fixed", "--policy", "full")
	list := lines[outageResult](t, got.out)
	if got.code != exitOK || len(list) != 8 || list[0].OutageMs != 50 || list[7].OutageMs != 5000 ||
		list[7].Clients != 100 {
		t.Fatalf("%+v", got)
	}
	if fixed, full := list[6], list[7]; fixed.Burst < 60 || full.Burst > 30 ||
		fixed.Wasted <= full.Wasted {
		t.Errorf("after 5 s, 100 clients: fixed %+v, full %+v", fixed, full)
	}
}

func TestSimCSMAJSON(t *testing.T) {
	got := try(t, "sim", "csma", "--stations", "2,10", "--frame-bits", "512,4096", "--bit-rate",
		"10e6", "--slot", "51.2us",
		"--attempts", "16", "--seed", "1", "--json")
	list := lines[csmaResult](t, got.out)
	if got.code != exitOK || len(list) != 4 {
		t.Fatalf("%+v", got)
	}
	for _, r := range list {
		if math.Abs(r.Ideal-r.Formula) > .02 || r.BEB <= 0 || r.BEB >= 1 || r.LostShare < 0 ||
			r.WinsInARow <= 0 {
			t.Errorf("%+v", r)
		}
	}
	if derived := try(t, "sim", "csma", "--stations", "2,10", "--frame-bits", "512,4096",
		"--json"); derived.out != got.out {
		t.Error("the slot is not derived from the bit rate")
	}
}
