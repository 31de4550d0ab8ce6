package endtoend

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// terminal is a tmux server of its own with one window.
type terminal struct {
	t      *testing.T
	socket string
	bin    string // quoted for the shell
	config string
}

// newTerminal starts a shell in tmux. The test is skipped unless PENSTOCK_TERMINAL is set.
func newTerminal(t *testing.T) *terminal {
	t.Helper()
	if os.Getenv("PENSTOCK_TERMINAL") == "" {
		t.Skip("skipped: `make terminal-short` sets PENSTOCK_TERMINAL; it needs tmux")
	}
	x := &terminal{t: t, socket: filepath.Join(t.TempDir(), "tmux")}
	x.tmux("-f", "/dev/null", "new-session", "-d", "-x", "130", "-y", "32", "sh")
	t.Cleanup(func() { x.tmux("kill-server") })
	x.tmux("set", "-g", "status", "off")
	return x
}

func (x *terminal) tmux(args ...string) string {
	x.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", x.socket}, args...)...).CombinedOutput()
	if err != nil {
		x.t.Fatalf("tmux %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// typed sends text, and then keys by their names in tmux.
func (x *terminal) typed(text string, keys ...string) {
	x.t.Helper()
	if text != "" {
		x.tmux("send-keys", "-l", text)
	}
	if len(keys) > 0 {
		x.tmux(append([]string{"send-keys"}, keys...)...)
	}
}

func (x *terminal) screen() string {
	x.t.Helper()
	return strings.TrimRight(x.tmux("capture-pane", "-p"), "\n")
}

// shows waits until the screen contains each of the texts. If a text begins with "!", the screen
// must not contain the rest of it.
func (x *terminal) shows(texts ...string) string {
	x.t.Helper()
	var screen, missing string
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); <-tick.C {
		screen, missing = x.screen(), ""
		for _, text := range texts {
			absent, ok := strings.CutPrefix(text, "!")
			if strings.Contains(screen, absent) == ok {
				missing = text
			}
		}
		if missing == "" {
			return screen
		}
	}
	x.t.Fatalf("the screen does not show %q:\n%s", missing, screen)
	return ""
}

// terminalReceiver answers after a time. A slow one serves one request after the other.
func terminalReceiver(t *testing.T, wait time.Duration, slots int) string {
	places := make(chan struct{}, slots)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		places <- struct{}{}
		soakWait(r.Context(), wait)
		<-places
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// TestTerminal operates `penstock top`, `tap` and `try` in tmux. It covers the description of a
// slow worker's gate (the limit that holds it back), keys, a narrow window, a process that ends,
// live samples, and typed lines.
func TestTerminal(t *testing.T) {
	x := newTerminal(t)
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	dir, address := t.TempDir(), connectortest.FreeAddress(t)
	fast := terminalReceiver(t, 20*time.Millisecond, 4)
	slow := terminalReceiver(t, 700*time.Millisecond, 1)
	in := filepath.Join(dir, "logs", "a.log")
	var lines strings.Builder
	for n := range 40_000 {
		fmt.Fprintf(&lines, "{\"n\":%d,\"secret\":\"x\"}\n", n)
	}
	keepGrowing(t, write(t, in, strings.Repeat(lines.String(), 10)), lines.String())
	config := write(t, filepath.Join(dir, "penstock.yaml"), fmt.Sprintf(`
state: %s/state
admin: { address: %q, token: only-for-this-test }
pipelines:
  shop:
    source: { tail: { include: [%q] } }
    processors: [{ parse: { format: json } }, { drop: [secret] }]
    batch: { records: 100 }
    sink: { http: { endpoints: [%q, %q] } }
`, dir, address, in, fast, slow))
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	d := launch(t, log, bin, "run", config)
	eventually(t, "it listens", func() bool {
		return strings.Contains(string(read(t, log.Name())), address)
	})
	x.bin, x.config = "'"+bin+"'", config
	x.top(fast, slow)
	x.tap(filepath.Join(dir, "tapped.json"))
	x.try()

	x.command("top "+config, "")
	x.shows("ready", slow)
	d.signal(syscall.SIGKILL)
	x.shows("DISCONNECTED, figures are old")
	x.typed("q")
	x.shows("exit code 0")
}

// keepGrowing appends text to a file each second until the test ends.
func keepGrowing(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() { <-ended })
	go func() {
		defer close(ended)
		defer f.Close()
		for soakWait(t.Context(), time.Second) {
			if _, err := f.WriteString(text); err != nil {
				t.Error(err)
				return
			}
		}
	}()
}

// command clears the screen and runs a command of penstock, which prints its exit code at the end.
func (x *terminal) command(args, rest string) {
	x.t.Helper()
	x.typed("clear; "+x.bin+" "+args+rest+`; echo "exit code $?"`, "Enter")
}

// top drives `penstock top` with a fast and a slow worker.
func (x *terminal) top(fast, slow string) {
	t := x.t
	x.command("top "+x.config, "")
	x.shows("ready", "shop/main: limited by the workers", fast, slow, "2 workers by attention")
	before := x.screen()
	eventually(t, "the figures change", func() bool { return x.screen() != before })
	x.typed("/"+strings.TrimPrefix(slow, "http://"), "Enter")
	x.shows(slow, "!"+fast, "1 worker by attention")
	x.typed("", "Enter")
	x.shows("gate        window: ", "round trip  ", "attempts    ")
	x.typed("", "Escape") // closes the details
	x.shows("!gate        window: ")
	x.typed("", "Escape") // clears the filter
	x.shows(fast, slow, "2 workers by attention")
	x.typed("s")
	x.shows("2 workers by name")
	x.typed("?")
	x.shows("select a worker", "reverse the order")
	x.tmux("resize-window", "-x", "60", "-y", "20")
	narrow := x.shows("shop/main", "!batch/s")
	for line := range strings.Lines(narrow) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 60 {
			t.Errorf("a line of %d columns in 60: %s", n, line)
		}
	}
	x.tmux("resize-window", "-x", "130", "-y", "32")
	x.typed("q")
	x.shows("exit code 0")
}

// tap drives `penstock tap`: a few samples of all stages, and one stage into a file until Ctrl-C.
func (x *terminal) tap(file string) {
	x.command("tap --count 20 --rate 5 "+x.config, " | sed 's/\"id\":\"[^\"]*\",//' | cut -c 1-120")
	x.shows(`"stage":"source"`, `"stage":"1:parse"`, `"stage":"2:drop"`, `"outcome":"kept"`,
		"exit code 0")
	x.command("tap "+x.config, " shop/main:sink > "+file)
	eventually(x.t, "deliveries are tapped", func() bool {
		text, _ := os.ReadFile(file) // missing at first
		return strings.Contains(string(text), `"outcome":"delivered"`)
	})
	x.typed("", "C-c")
	x.shows("exit code 0")
}

// try drives `penstock try` with lines that are typed.
func (x *terminal) try() {
	x.command("try "+x.config, "")
	x.shows("!exit code 0")
	x.typed(`{"n":7,"secret":"x"}`, "Enter")
	x.shows("line 1", `parse      {"n":7,"secret":"x"}`, "- message", "+ n: 7",
		`drop       {"n":7}`, "- secret")
	x.typed("no JSON", "Enter")
	x.shows("line 2", "dead: ")
	x.typed("", "C-d")
	x.shows("exit code 0")
}
