package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDeadReplayCounts checks that the counts of a replay add up to the number of letters, also if
// a processor drops some of them or the sink parks them. A second replay must count all of them as
// replayed before.
func TestDeadReplayCounts(t *testing.T) {
	down := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer down.Close()
	u, err := url.Parse(down.URL)
	if err != nil {
		t.Fatal(err)
	}
	parks := fmt.Sprintf(`http: { url: '"%s/"', allow: { hosts: ["%s"], ports: [%s], http: true, `+
		`private: true } }`, down.URL, u.Hostname(), u.Port())
	for name, c := range map[string]struct{ processors, sink, want, again string }{
		"dropped": {
			`[ { where: 'message == "y"' } ]`, `drop:`,
			"3 dead letters: 1 delivered, 0 refused again (new letters), 2 dropped by a " +
				"processor, 0 had been replayed before",
			"3 dead letters: 0 delivered, 0 refused again (new letters), 3 had been replayed before",
		},
		"parked": {
			`[]`, parks,
			"3 dead letters: 0 delivered, 0 refused again (new letters), 3 parked: " +
				"`penstock parked` shows their deliveries, 0 had been replayed before",
			"3 dead letters: 0 delivered, 0 refused again (new letters), 3 had been replayed before",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			config := filepath.Join(dir, "penstock.yaml")
			letters := filepath.Join(dir, "state", "dead", "p.main.ndjson")
			text := "state: " + filepath.Join(dir, "state") + "\npipelines: { p: { source: { tail: " +
				"{ include: [" + filepath.Join(dir, "*.log") + "] } }, processors: " + c.processors +
				", sink: { " + c.sink + " } } }\n"
			const lines = `{"version":1,"id":"a@1","record":"x"}` + "\n" +
				`{"version":1,"id":"a@2","record":"y"}` + "\n" +
				`{"version":1,"id":"a@3","record":"z"}` + "\n"
			err := os.MkdirAll(filepath.Dir(letters), 0o700)
			if err == nil {
				err = os.WriteFile(config, []byte(text), 0o600)
			}
			if err == nil {
				err = os.WriteFile(letters, []byte(lines), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{c.want, c.again} {
				got := realProgram().try(t, "dead", "replay", config)
				if got.code != 0 || strings.TrimSpace(got.out) != want {
					t.Errorf("exit code %d, want 0 with %q:\n%s%s", got.code, want, got.out,
						got.stderr)
				}
			}
			got := realProgram().try(t, "dead", "replay", "--json", config)
			const want = `{"ok":true,"letters":3,"replayed":3,"skipped":0,"pipelines":[]}`
			if got.code != 0 || !strings.HasPrefix(got.out, want) {
				t.Errorf("exit code %d, want 0 with %s:\n%s%s", got.code, want, got.out, got.stderr)
			}
		})
	}
}
