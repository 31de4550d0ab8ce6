package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
)

// TestParked parks deliveries in a finite run, and then lists, retries and cancels them.
func TestParked(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/good":
			_, _ = io.WriteString(w, "success")
		case "/slow":
			w.Header().Set("Location", "/operation?token=Hunter2")
			w.WriteHeader(http.StatusAccepted)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer server.Close()
	t.Chdir(t.TempDir())
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`pipelines:
  paid:
    source: {spool_dir: {path: in}}
    sink:
      http:
        url: '"%s/" + message + "?token=Hunter2"'
        idempotency_key: message
        allow: {hosts: [%s], ports: [%s], http: true, private: true}
        schedule: 'message == "last" ? "[]" : ""'
        exhausted: keep
        async: {location: headers.location, done: status == 201, poll: fixed delay=10m}
`, server.URL, u.Hostname(), u.Port())
	if err := os.Mkdir("in", 0o700); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{
		"penstock.yaml": config,
		"in/a.log":      "good\nbad\nworse\nslow\nlast\n",
	}
	for name, text := range files {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const rest = `"dead":0,"dropped":0,"in_flight":0,"waiting":0`
	for _, x := range []struct {
		args, want string
		code       int
	}{
		{"parked stats penstock.yaml", "nothing has been parked yet", 0},
		{"parked list penstock.yaml", "0 deliveries", 0},
		{"run --once --json penstock.yaml", `"delivered":1,` + rest + `,"parked":4`, 0},
		{"parked stats penstock.yaml", "paid/main: 4 parked (1 exhausted); 1 done, 0 dead, 0 cancelled", 0},
		{"parked list penstock.yaml", "5 deliveries", 0},
		{"parked list --state waiting --limit 1 penstock.yaml", "waiting, attempt 2 of 16 at", 0},
		{"parked list --host 127.0.0.1 --state done --json penstock.yaml", `{"ok":true,"deliveries":1}`, 0},
		{"parked list --state lost penstock.yaml", "state is waiting, exhausted, done, dead or cancelled", 2},
		{"parked list --state exhausted penstock.yaml", "exhausted, waits for an operator", 0},
		{"parked show penstock.yaml slow", "waiting, poll 1 at", 0},
		{"parked show --json penstock.yaml slow", `/operation","accepted_at":"`, 0},
		{"parked stats --json penstock.yaml", `"parked":4,"exhausted":1,"done":1`, 0},
		{"parked retry penstock.yaml last", "waiting, extra attempt at", 0},
		{"parked cancel penstock.yaml last", "cancelled, ended", 0},
		{"parked cancel penstock.yaml slow", "cancelled, ended", 0},
		{"parked show penstock.yaml bad", "404", 0},
		{"parked show --json penstock.yaml bad", `"event":"refuse"`, 0},
		{"parked retry penstock.yaml bad", "by an operator", 0},
		{"parked cancel penstock.yaml worse", "cancelled, ended", 0},
		{"parked cancel penstock.yaml worse", "has ended", 1},
		{"parked retry penstock.yaml good", "has ended", 1},
		{"parked show penstock.yaml none", `there is no delivery with the key none`, 1},
		{"parked retry penstock.yaml good none bad", "paid/main  bad  ", 1},
		{"parked retry penstock.yaml none nothing", `with the key nothing`, 1},
		{"parked show penstock.yaml", "at least one key", 2},
		{"parked show no-such.yaml good", "no-such.yaml", 2},
		{"parked list --route paid/other penstock.yaml", "the routes that do are paid/main", 2},
		{"run --once --json penstock.yaml", `"delivered":0,` + rest + `,"parked":1`, 0},
	} {
		got := realProgram().try(t, strings.Fields(x.args)...)
		if got.code != x.code || !strings.Contains(got.out+got.stderr, x.want) {
			t.Errorf("%s: exit code %d, want %d with %q\n%s%s",
				x.args, got.code, x.code, x.want, got.out, got.stderr)
		}
		if x.want == "no-such.yaml" && strings.Contains(got.stderr, "no delivery") {
			t.Errorf("%s: the message is about a delivery:\n%s", x.args, got.stderr)
		}
		if strings.Contains(got.out+got.stderr, "Hunter2") {
			t.Errorf("%s shows the query of a URL\n%s%s", x.args, got.out, got.stderr)
		}
	}
}
