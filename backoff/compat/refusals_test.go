package compat

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestVectorsRefuses checks that TestVectors can fail. It runs TestVectors over a folder of wrong
// cases, which must all fail, and of similar correct cases, which must all pass.
func TestVectorsRefuses(t *testing.T) {
	type object = map[string]any
	flume := object{"max_backoff_ns": 4 * time.Second, "backoff": true,
		"outcomes": []string{"full", "full"}}
	exact := func(policy string, params object, delays ...time.Duration) object {
		return object{"policy": policy, "kind": "exact", "params": params, "delays_ns": delays,
			"ends": "continues"}
	}
	fast := object{"fast_ns": 1, "slow_ns": 9, "max_fast": 1}
	// jitter returns a case for wait.Jitter(1 s, 0.5), which draws uniformly from [1 s, 1.5 s).
	// The arguments are the statistics that the case states about the draws, correct or wrong.
	jitter := func(low, mean, high, deviation time.Duration, atoms ...object) object {
		step := object{
			"n": 0, "min_ns": low, "max_ns": high, "mean_ns": mean, "stddev_ns": deviation,
			"quantiles_ns": object{"0.5": mean}, "atoms": atoms,
		}
		return object{
			"policy": "k8s.jitter", "kind": "random",
			"params":   object{"duration_ns": time.Second, "max_factor": .5},
			"sampling": "independent", "samples": 20000, "ends": "continues",
			"steps": []object{step},
		}
	}
	const ms, top = time.Millisecond, 1500*time.Millisecond - 1
	cases := map[string]object{
		"right/exact":  exact("flume.spool", flume, 250*ms, 500*ms),
		"right/random": jitter(1000*ms, 1250*ms, top, 144337567),
		"right/steps":  exact("k8s.fast_slow", fast, 1, 9, 9),
		"wrong/policy": exact("flume.pigeon", flume, 250*ms),
		"wrong/value":  exact("flume.spool", flume, 250*ms, 501*ms),
		"wrong/step":   exact("k8s.fast_slow", fast, 1, 1, 9),
		"wrong/setting": exact("k8s.fast_slow",
			object{"fast_ns": 1, "slow_ns": 9, "max_fast": 1, "colour": 3}, 1, 9),
		"wrong/kind": object{"policy": "k8s.fast_slow", "kind": "dance", "params": fast},
		"wrong/end": object{"policy": "k8s.fast_slow", "kind": "exact", "params": fast,
			"delays_ns": []int{1}, "ends": "stop"},
		"wrong/mean":      jitter(1000*ms, 1230*ms, top, 144337567),
		"wrong/deviation": jitter(1000*ms, 1250*ms, top, 134*ms),
		"wrong/support":   jitter(1100*ms, 1250*ms, top, 144337567),
		"wrong/atom": jitter(1000*ms, 1250*ms, top, 144337567,
			object{"value_ns": top, "share": .2}),
		"wrong/lost jitter":  jitter(1250*ms, 1250*ms, 1250*ms, 0),
		"wrong/out of bound": jitter(1000*ms, 1250*ms, 1501*ms, 144337567),
	}
	file := object{"form": 1, "library": "none", "version": "0"}
	var list []object
	for name, c := range cases {
		c["name"] = name
		list = append(list, c)
	}
	file["cases"] = list
	data, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "made.json"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	again := exec.Command(os.Args[0], "-test.run=^TestVectors$", "-test.v")
	again.Env = append(os.Environ(), "PENSTOCK_VECTORS="+dir)
	out, err := again.CombinedOutput()
	if err == nil {
		t.Errorf("TestVectors passed over wrong cases:\n%s", out)
	}
	for name := range cases {
		want := "--- FAIL: "
		if strings.HasPrefix(name, "right/") {
			want = "--- PASS: "
		}
		if !strings.Contains(string(out),
			want+"TestVectors/made/"+strings.ReplaceAll(name, " ", "_")+" ") {
			t.Errorf("case %q: want %q in\n%s", name, want, out)
		}
	}
}
