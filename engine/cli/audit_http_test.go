package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
)

// heldServer is an HTTP receiver that stores the lines posted to /in. Other paths list them for an
// audit: /held whole, and /ids only the JSON member "n" of each line.
type heldServer struct {
	mu    sync.Mutex // guards lines
	lines []string
}

// ServeHTTP implements http.Handler. It refuses clients without a token.
func (h *heldServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer s3cr3t" {
		http.Error(w, "wrong token", http.StatusUnauthorized)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch r.URL.Path {
	case "/in":
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		h.lines = append(h.lines, strings.Split(strings.TrimSuffix(string(body), "\n"), "\n")...)
	case "/held":
		fmt.Fprintln(w, strings.Join(h.lines, "\n"))
	case "/ids":
		for _, line := range h.lines {
			var record struct{ N int }
			if json.Unmarshal([]byte(line), &record) == nil {
				fmt.Fprintln(w, record.N)
			}
		}
	case "/cut":
		w.Header().Set("Content-Length", "1000000")
		fmt.Fprintln(w, strings.Join(h.lines, "\n"))
	default:
		http.NotFound(w, r)
	}
}

// change replaces the stored lines with the result of edit.
func (h *heldServer) change(edit func([]string) []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = edit(append([]string{}, h.lines...))
}

// TestAuditHTTP audits HTTP receivers that list whole records, the value of an expression for
// each record, or plain lines.
func TestAuditHTTP(t *testing.T) {
	t.Chdir(t.TempDir())
	held := &heldServer{}
	server := httptest.NewServer(held)
	defer server.Close()
	var lines strings.Builder
	for i := range 50 {
		fmt.Fprintf(&lines, "{\"n\":%d,\"t\":\"text %d\"}\n", i, i)
	}
	if err := os.Mkdir("logs", 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, "logs/a.log", lines.String())
	configOf := func(audit string, processors string) string {
		return fmt.Sprintf(`state: ./state
pipelines:
  p:
    source: {tail: {include: [./logs/*]}}
    processors: [%s]
    sink: {http: {endpoints: [%q], bearer: s3cr3t, %s}}
`, processors, server.URL+"/in", audit)
	}
	parse := "{parse: {format: json}}, {where: 'n != 7'}"
	forms := map[string]string{
		"whole": configOf(fmt.Sprintf("audit: {url: %q}", server.URL+"/held"), parse),
		"ids":   configOf(fmt.Sprintf("audit: {url: %q, id: n}", server.URL+"/ids"), parse),
		"raw":   configOf(fmt.Sprintf("body: raw, audit: {url: %q}", server.URL+"/held"), parse),
		"no id": configOf(fmt.Sprintf("audit: {url: %q, id: t ?? null}", server.URL+"/ids"),
			parse+", {set: {t: '\"\"'}}"),
		"missing":  configOf(fmt.Sprintf("audit: {url: %q}", server.URL+"/other"), parse),
		"cut":      configOf(fmt.Sprintf("audit: {url: %q}", server.URL+"/cut"), parse),
		"silent":   configOf("compress: none", parse),
		"password": configOf("audit: {url: 'http://u:hunter2@127.0.0.1:1/held?k=hunter2'}", parse),
		"id only":  configOf("audit: {id: n}", parse),
		"no field": configOf(fmt.Sprintf("audit: {url: %q, id: m}", server.URL+"/ids"),
			"{parse: {format: regex, pattern: '(?P<n>.*)'}}"),
	}
	for name, text := range forms {
		writeFile(t, name+".yaml", text)
	}
	if got := realProgram().try(t, "run", "--once", "whole.yaml"); got.code != exitOK {
		t.Fatalf("run --once: exit code %d: %s", got.code, got.stderr)
	}
	all := held.lines
	for _, c := range []struct {
		name string
		form string
		edit func([]string) []string
		code int
		want string
	}{
		{"sound", "whole", nil, exitOK,
			"49 must be in the sink (compared)\n  0 differences\n"},
		{"sound, by ids", "ids", nil, exitOK, "(compared)\n  0 differences\n"},
		{"sound, as they were read", "raw", nil, exitOK, "(compared)\n  0 differences\n"},
		{"without options", "silent", nil, exitOK, "sink http cannot be read"},
		{"lost", "whole", func(l []string) []string { return append(l[:5], l[6:]...) },
			exitUnfinished, "missing      p/main  logs/a.log: record f1."},
		{"lost, by ids", "ids", func(l []string) []string { return append(l[:5], l[6:]...) },
			exitUnfinished, "missing      p/main"},
		{"taken twice", "ids", func(l []string) []string { return append(l, l[3]) },
			exitUnfinished, "extra        p/main"},
		{"of others", "ids", func(l []string) []string { return append(l, `{"n":900}`) }, exitOK,
			"0 differences"},
		{"changed", "whole", func(l []string) []string {
			l[9] = strings.Replace(l[9], "text", "TEXT", 1)
			return l
		}, exitUnfinished, "missing      p/main"},
		{"changed, but for the id", "ids", func(l []string) []string {
			l[9] = strings.Replace(l[9], "text", "TEXT", 1)
			return l
		}, exitOK, "0 differences"},
		{"no id", "no id", nil, exitUnfinished, "the value is null, empty"},
		{"not found", "missing", nil, exitUnfinished, "/other: 404 Not Found"},
		{"answer cut off", "cut", nil, exitUnfinished, "audit failed"},
		{"password", "password", nil, exitUnfinished, "GET http://127.0.0.1:1/held: "},
		{"id without URL", "id only", nil, exitUsage, "audit.id: has no effect without audit.url"},
		{"unknown field", "no field", nil, exitUsage, `there is no field "m"`},
	} {
		held.change(func([]string) []string {
			lines := append([]string{}, all...)
			if c.edit != nil {
				lines = c.edit(lines)
			}
			return lines
		})
		got := realProgram().try(t, "audit", c.form+".yaml")
		if said := got.out + got.stderr; got.code != c.code || !strings.Contains(said, c.want) ||
			strings.Contains(said, "hunter2") || strings.Contains(said, "s3cr3t") {
			t.Errorf("%s: exit code %d, want %d with %q and no secret:\n%s", c.name, got.code,
				c.code, c.want, said)
		}
	}
	got := realProgram().try(t, "validate", "password.yaml")
	if strings.Contains(got.out, "hunter2") {
		t.Errorf("validate prints the password:\n%s", got.out)
	}
}
