package admin

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/penstock-io/penstock/engine/internal/metrics"
	"github.com/penstock-io/penstock/engine/status"
)

const deployDir = "../../../deploy/"

// alertRules is the part of a Prometheus rules file that the tests use.
type alertRules struct {
	Groups []struct {
		Rules []struct {
			Alert       string            `yaml:"alert"`
			Expr        string            `yaml:"expr"`
			Labels      map[string]string `yaml:"labels"`
			Annotations map[string]string `yaml:"annotations"`
		} `yaml:"rules"`
	} `yaml:"groups"`
}

// TestAlertRules checks that the alert rules use only existing metrics and labels. Each alert must
// have a severity, texts and unit tests for promtool.
func TestAlertRules(t *testing.T) {
	var rules alertRules
	if err := yaml.Unmarshal(read(t, "prometheus/alerts.yaml"), &rules); err != nil {
		t.Fatal(err)
	}
	unitTests := string(read(t, "prometheus/alerts_test.yaml"))
	known := exportedLabels(t)
	count := 0
	for _, group := range rules.Groups {
		for _, r := range group.Rules {
			count++
			checkExpr(t, r.Alert, r.Expr, known)
			if s := r.Labels["severity"]; s != "warning" && s != "critical" {
				t.Errorf("%s: severity is %q, want warning or critical", r.Alert, s)
			}
			for _, key := range []string{"summary", "description"} {
				if r.Annotations[key] == "" {
					t.Errorf("%s has no annotation %s", r.Alert, key)
				}
			}
			for _, kind := range []string{"fires", "stays silent"} {
				if !strings.Contains(unitTests, "name: "+r.Alert+" "+kind+"\n") {
					t.Errorf("alerts_test.yaml has no case %q", r.Alert+" "+kind)
				}
			}
		}
	}
	if count < 10 {
		t.Errorf("found %d alerts: the form of alerts.yaml has changed", count)
	}
}

// TestGrafanaDashboard checks that the dashboard uses only existing metrics and labels. Panels must
// have distinct ids and must not overlap.
func TestGrafanaDashboard(t *testing.T) {
	var board struct {
		Panels []struct {
			ID      int
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
		Annotations struct{ List []struct{ Name, Expr string } }
		Templating  struct {
			List []struct {
				Name       string
				Definition string
			}
		}
	}
	if err := json.Unmarshal(read(t, "grafana/penstock.json"), &board); err != nil {
		t.Fatal(err)
	}
	known := exportedLabels(t)
	ids := map[int]bool{}
	cells := map[[2]int]string{}
	for _, p := range board.Panels {
		if ids[p.ID] {
			t.Errorf("panel %q: id %d is taken", p.Title, p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := cells[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("panel %q at %d,%d overlaps %q or leaves the 24 columns", p.Title, x, y, other)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
		if len(p.Targets) == 0 {
			t.Errorf("panel %q has no query", p.Title)
		}
		for _, target := range p.Targets {
			checkExpr(t, p.Title, target.Expr, known)
		}
	}
	for _, a := range board.Annotations.List {
		checkExpr(t, a.Name, a.Expr, known)
	}
	for _, v := range board.Templating.List {
		if v.Definition != "" {
			checkExpr(t, v.Name, v.Definition, known)
		}
	}
	if len(board.Panels) < 10 {
		t.Errorf("found %d panels: the form of the dashboard has changed", len(board.Panels))
	}
}

// TestExprScanner checks that exprFault finds wrong names.
func TestExprScanner(t *testing.T) {
	known := exportedLabels(t)
	for expr, want := range map[string]string{
		`penstock_ready == 0`: "",
		`sum by (instance, worker) (penstock_worker_state{state=~"OPEN|PROBING"})`:         "",
		`histogram_quantile(0.9, sum by (le) (rate(penstock_settled_seconds_bucket[5m])))`: "",
		`penstock_reddy == 0`:       "no metric penstock_reddy",
		`penstock_ready{route="r"}`: "metric penstock_ready has no label route",
		`penstock_worker_state{state="BROKEN"}`: "label state of " +
			"penstock_worker_state is never BROKEN",
		`sum by (wroker) (penstock_worker_state)`:                 "no metric has a label wroker",
		`rate(penstock_settled_seconds[5m]) + wrong_metric_total`: "no metric wrong_metric_total",
		`1 + 1`: "no metric in it",
	} {
		if got := exprFault(expr, known); got != want {
			t.Errorf("%s: got %q, want %q", expr, got, want)
		}
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(deployDir + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func checkExpr(t *testing.T, where, expr string, known map[string]map[string][]string) {
	t.Helper()
	if fault := exprFault(expr, known); fault != "" {
		t.Errorf("%s: %s: %s", where, expr, fault)
	}
}

var (
	metricUse   = regexp.MustCompile(`([a-z]+_[a-z_]+)(?:\{([^}]*)\})?`)
	labelMatch  = regexp.MustCompile(`([a-z_]+)(=~|!~|!=|=)"([^"]*)"`)
	grouping    = regexp.MustCompile(`\b(?:by|without|on|ignoring)\s*\(([^)]*)\)`)
	notMetrics  = []string{"histogram_quantile", "label_values"}
	scrapeAdds  = []string{"job", "instance", "le"}
	scrapeGiven = []string{"up"}
)

// exprFault describes the first name in a PromQL expression that is neither a known metric nor a
// known label. It returns "" if there is none. known has the values of each label of each metric.
func exprFault(expr string, known map[string]map[string][]string) string {
	for _, m := range grouping.FindAllStringSubmatch(expr, -1) {
		for label := range strings.SplitSeq(m[1], ",") {
			if label = strings.TrimSpace(label); !slices.Contains(scrapeAdds, label) && !anyHasLabel(known, label) {
				return "no metric has a label " + label
			}
		}
	}
	found := slices.ContainsFunc(scrapeGiven, func(name string) bool { return strings.HasPrefix(expr, name+"{") })
	for _, m := range metricUse.FindAllStringSubmatch(grouping.ReplaceAllString(expr, ""), -1) {
		name := m[1]
		if slices.Contains(notMetrics, name) || strings.HasSuffix(name, "_interval") {
			continue
		}
		found = true
		labels, ok := known[name]
		if !ok {
			return "no metric " + name
		}
		for _, l := range labelMatch.FindAllStringSubmatch(m[2], -1) {
			values, ok := labels[l[1]]
			switch {
			case slices.Contains(scrapeAdds, l[1]):
				continue
			case !ok:
				return "metric " + name + " has no label " + l[1]
			}
			if !slices.Contains([]string{"state", "health", "gate"}, l[1]) {
				continue
			}
			for v := range strings.SplitSeq(l[3], "|") {
				if !slices.Contains(values, v) {
					return "label " + l[1] + " of " + name + " is never " + v
				}
			}
		}
	}
	if !found {
		return "no metric in it"
	}
	return ""
}

func anyHasLabel(known map[string]map[string][]string, label string) bool {
	for _, labels := range known {
		if _, ok := labels[label]; ok {
			return true
		}
	}
	return false
}

// exportedLabels returns the values of each label of each metric, as exported by an engine in which
// every part is configured.
func exportedLabels(t *testing.T) map[string]map[string][]string {
	t.Helper()
	counters := map[string]int64{"n": 1}
	picture := func() status.Status {
		return status.Status{
			Sources: []status.Source{{Pipeline: "p", Name: "tail", Counters: counters, Held: &status.Held{}}},
			Routes: []status.Route{{
				Pipeline: "p", Name: "r", Source: "tail", Health: "running", Counters: counters,
				SourceCounters: counters,
				Workers:        []status.Worker{{Name: "w", State: "NORMAL", Gate: "none"}},
			}},
		}
	}
	latency := metrics.NewLatency()
	latency.WithLabelValues("p", "r").Observe(1)
	trips := metrics.NewRoundTrips()
	trips.WithLabelValues("p", "r").Observe(1)
	families, err := Registry(picture, latency, trips).Gather()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]map[string][]string{}
	for _, f := range families {
		labels := map[string][]string{}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = append(labels[l.GetName()], l.GetValue())
			}
		}
		known[f.GetName()] = labels
		if f.GetType().String() == "HISTOGRAM" {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				known[f.GetName()+suffix] = labels
			}
		}
	}
	return known
}

// TestPromtool uses promtool, if it is installed, to run the unit tests of the alert rules and to
// parse each expression of the dashboard.
func TestPromtool(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not on the PATH (Debian package prometheus)")
	}
	var board struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal(read(t, "grafana/penstock.json"), &board); err != nil {
		t.Fatal(err)
	}
	type rule struct {
		Record string `yaml:"record"`
		Expr   string `yaml:"expr"`
	}
	var rules []rule
	variables := strings.NewReplacer("$__rate_interval", "1m", "$__range", "1h", "$__interval", "1m")
	for i, p := range board.Panels {
		for k, target := range p.Targets {
			rules = append(rules, rule{fmt.Sprintf("panel:%d:%d", i, k), variables.Replace(target.Expr)})
		}
	}
	text, err := yaml.Marshal(map[string]any{"groups": []map[string]any{{"name": "dashboard", "rules": rules}}})
	if err != nil {
		t.Fatal(err)
	}
	panels := filepath.Join(t.TempDir(), "panels.yaml")
	if err := os.WriteFile(panels, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"check", "rules", panels},
		{"check", "rules", deployDir + "prometheus/alerts.yaml"},
		{"test", "rules", deployDir + "prometheus/alerts_test.yaml"},
	} {
		out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "SUCCESS") {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}
