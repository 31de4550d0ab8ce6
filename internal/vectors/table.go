package vectors

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The packages that test the vectors in golden/*.json. Each case is tested in exactly one of them.
const (
	Backoff = "backoff"
	Compat  = "backoff/compat"
	Retry   = "retry"
)

// owners maps each policy to the package that tests it. If a policy is missing here, the test of
// backoff/compat fails.
var owners = map[string]string{
	"fibonacci":   Backoff,
	"exponential": Backoff,
	"table":       Backoff,
	"slotted":     Backoff,

	"polling.pseudo": Retry,
	"polling.java":   Retry,
	"cenkalti.retry": Retry,
	"aws.tokens":     Retry,

	"akka":                                Compat,
	"aws.2026":                            Compat,
	"aws.legacy":                          Compat,
	"cenkalti":                            Compat,
	"curator.bounded":                     Compat,
	"curator.exponential":                 Compat,
	"curator.exponential_limit":           Compat,
	"curator.forever":                     Compat,
	"curator.n_times":                     Compat,
	"curator.one_time":                    Compat,
	"curator.retryable":                   Compat,
	"curator.until_elapsed":               Compat,
	"flume.failover_sink":                 Compat,
	"flume.order_selector":                Compat,
	"flume.sink_runner":                   Compat,
	"flume.source_runner":                 Compat,
	"flume.spool":                         Compat,
	"grpc.connection":                     Compat,
	"hadoop.by_exception":                 Compat,
	"hadoop.by_remote_exception":          Compat,
	"hadoop.exponential":                  Compat,
	"hadoop.failover":                     Compat,
	"hadoop.fixed_count":                  Compat,
	"hadoop.fixed_forever":                Compat,
	"hadoop.fixed_time":                   Compat,
	"hadoop.multiple_linear_random":       Compat,
	"hadoop.multiple_linear_random_parse": Compat,
	"hadoop.other_than_remote_and_sasl":   Compat,
	"hadoop.proportional":                 Compat,
	"hadoop.retry_forever":                Compat,
	"hadoop.try_once":                     Compat,
	"jodis":                               Compat,
	"jpillora":                            Compat,
	"jpillora.seeded":                     Compat,
	"k8s.fast_slow":                       Compat,
	"k8s.flowcontrol":                     Compat,
	"k8s.jitter":                          Compat,
	"k8s.wait":                            Compat,
	"k8s.wait.loop":                       Compat,
	"k8s.workqueue":                       Compat,
	"pekko":                               Compat,
	"resilience4j.exponential":            Compat,
	"resilience4j.exponential_random":     Compat,
	"resilience4j.fixed":                  Compat,
	"resilience4j.randomized":             Compat,
	"sethvargo.constant":                  Compat,
	"sethvargo.exponential":               Compat,
	"sethvargo.fibonacci":                 Compat,
}

// Dir returns the folder with the golden vectors: the value of the environment variable
// PENSTOCK_VECTORS, or the project's own folder.
func Dir(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv("PENSTOCK_VECTORS"); dir != "" {
		return dir
	}
	from, err := os.Getwd() // of the package that is tested
	if err != nil {
		t.Fatal(err)
	}
	for at := from; ; at = filepath.Dir(at) {
		dir := filepath.Join(at, "internal", "vectors", "golden")
		if _, err := os.Stat(dir); err == nil {
			return dir
		}
		if at == filepath.Dir(at) {
			t.Fatalf("no folder above %s holds internal/vectors/golden", from)
		}
	}
}

// Run runs one subtest for each case in Dir that belongs to pkg, with the handler of its policy.
// The test of pkg fails if one of its policies has no handler, or if a handler leaves a parameter
// of a case unread. If the policy of a case is not in owners, the test of backoff/compat fails.
func Run(t *testing.T, pkg string, handlers map[string]func(*testing.T, Case)) {
	for _, policy := range slices.Sorted(maps.Keys(owners)) {
		if owned := owners[policy] == pkg; owned != (handlers[policy] != nil) {
			t.Errorf("policy %q belongs to %s: it needs a handler there, and only there", policy,
				owners[policy])
		}
	}
	for policy := range handlers {
		if owners[policy] == "" {
			t.Errorf("policy %q has a handler in the test of %s and no owner: "+
				"add it to internal/vectors/table.go", policy, pkg)
		}
	}
	files, err := Load(Dir(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		for _, c := range f.Cases {
			owner, known := owners[c.Policy]
			if owner != pkg && (known || pkg != Compat) {
				continue
			}
			t.Run(strings.TrimSuffix(f.Name, ".json")+"/"+c.Name, func(t *testing.T) {
				handle := handlers[c.Policy]
				if !known {
					t.Fatalf("policy %q is in no table: add it to internal/vectors/table.go",
						c.Policy)
				}
				if handle == nil {
					t.Fatalf("policy %q has no handler in the test of %s", c.Policy, pkg)
				}
				handle(t, c)
				if keys := c.Params.Unread(); len(keys) > 0 && !t.Failed() {
					t.Errorf("params %q were not read: this form of %q is not known", keys,
						c.Policy)
				}
			})
		}
	}
}
