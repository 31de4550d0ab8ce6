//go:build unix

package child_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/kit/child"
	"github.com/penstock-io/penstock/stream"
)

// patience bounds every wait of a test.
const patience = 20 * time.Second

// sh returns a spec that runs a shell script.
func sh(script string, args ...string) child.Spec {
	return child.Spec{Command: append([]string{"/bin/sh", "-c", script, "sh"}, args...), Grace: -1}
}

// output runs a process to its end and returns its standard output.
func output(t *testing.T, s child.Spec, input string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out []byte
	err := child.Run(ctx, s, func(ctx context.Context, p *child.Process) error {
		// the child may have ended before it reads its input
		if err := p.Write(ctx, []byte(input)); err != nil && !errors.Is(err, child.ErrNotReading) {
			return err
		}
		if err := p.CloseInput(); err != nil && !errors.Is(err, child.ErrNotReading) {
			return err
		}
		var err error
		out, err = io.ReadAll(p)
		p.Await(ctx)
		return err
	})
	return string(out), err
}

// TestEnvironment checks that a child gets only the listed variables, runs without a shell, and
// runs in the configured directory.
func TestEnvironment(t *testing.T) {
	t.Setenv("LISTED", "a value")
	t.Setenv("SECRET", "hunter2")
	dir := t.TempDir()
	s := child.Spec{
		Command: []string{"/usr/bin/env"}, Dir: dir, Grace: -1,
		Env:   []string{"LISTED", "MADE", "NOT_SET"},
		Extra: map[string]string{"MADE": "by penstock", "UNLISTED": "x"},
	}
	out, err := output(t, s, "")
	if want := "LISTED=a value\nMADE=by penstock\n"; err != nil || out != want {
		t.Errorf("the environment is %q (%v), want %q", out, err, want)
	}
	s = sh(`pwd; printf '%s\n' "$@"`, "$SECRET; echo no", "*")
	s.Dir = dir
	real, _ := filepath.EvalSymlinks(dir)
	if out, err := output(t, s, ""); err != nil || out != real+"\n$SECRET; echo no\n*\n" {
		t.Errorf("arguments and folder: %q, %v", out, err)
	}
}

// TestEnds checks that errors describe how a process ended and quote its last output.
func TestEnds(t *testing.T) {
	for _, c := range []struct {
		script string
		code   int
		signal bool
		said   string
	}{
		{"exit 0", 0, false, ""},
		{"echo first >&2; echo 'no such table' >&2; exit 3", 3, false, "no such table"},
		{"kill -9 $$", -1, true, ""},
		{"kill -SEGV $$", -1, true, ""},
	} {
		_, err := output(t, sh(c.script), "")
		if c.code == 0 {
			if err != nil {
				t.Errorf("%q: %v", c.script, err)
			}
			continue
		}
		e, ok := errors.AsType[*child.ExitError](err)
		if !ok || e.Code != c.code || e.Signalled != c.signal ||
			!strings.Contains(e.Stderr, c.said) || e.Killed != nil {
			t.Errorf("%q: %#v", c.script, err)
		}
	}
	for _, command := range [][]string{{"no-such-program"}, {"./no-such-file"}, {os.TempDir()}} {
		err := child.Run(t.Context(), child.Spec{Command: command},
			func(context.Context, *child.Process) error { return nil })
		if e, ok := errors.AsType[*child.StartError](err); !ok || e.Program != command[0] {
			t.Errorf("%q: %v, want a StartError", command, err)
		}
	}
}

// TestGroupDies checks that a hanging child is killed with its descendants. Run must return soon,
// even if another process still holds the child's pipes.
func TestGroupDies(t *testing.T) {
	enough := errors.New("enough")
	for name, script := range map[string]string{
		"child of a child": `sleep 1000 & echo $!; echo $$; wait`,
		"deaf to all":      `trap '' TERM INT HUP; echo $$; while :; do sleep 1000; done`,
		"background only":  `sleep 1000 & echo $!`,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			var pids []string
			began := time.Now()
			err := child.Run(ctx, sh(script), func(ctx context.Context, p *child.Process) error {
				buf := make([]byte, 1000)
				n, _ := p.Read(buf)
				pids = strings.Fields(string(buf[:n]))
				cancel(enough)
				_, err := io.Copy(io.Discard, p)
				return err
			})
			if took := time.Since(began); took > patience/2 {
				t.Errorf("Run took %v", took)
			}
			if e, ok := errors.AsType[*child.ExitError](err); name != "background only" &&
				(!ok || !errors.Is(e.Killed, enough)) {
				t.Errorf("Run: %v, want that it was killed for %v", err, enough)
			}
			if len(pids) == 0 {
				t.Fatal("no process told its id")
			}
			for _, text := range pids {
				pid, _ := strconv.Atoi(text)
				if gone := eventually(func() bool { return dead(pid) }); !gone {
					t.Errorf("process %d still runs", pid)
				}
			}
		})
	}
}

// dead reports whether a process has ended, or is a zombie that its parent has not reaped yet.
func dead(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && bytes.Contains(stat, []byte(") Z "))
}

func eventually(what func() bool) bool {
	end := time.NewTimer(patience)
	defer end.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !what() {
		select {
		case <-tick.C:
		case <-end.C:
			return false
		}
	}
	return true
}

// TestGrace checks a child that ends when its input is closed, which Run must not kill. Run must
// kill any other child after Grace.
func TestGrace(t *testing.T) {
	for _, c := range []struct {
		script string
		grace  time.Duration
		killed bool
	}{
		{"cat >/dev/null; exit 0", patience, false},
		{"while :; do sleep 1000; done", 50 * time.Millisecond, true},
	} {
		s := sh(c.script)
		s.Grace = c.grace
		err := child.Run(t.Context(), s, func(context.Context, *child.Process) error { return nil })
		if e, ok := errors.AsType[*child.ExitError](err); ok != c.killed || ok && e.Killed == nil {
			t.Errorf("%q: %v", c.script, err)
		}
	}
}

// TestCauseOfTalk calls Run with a function talk that returns when ctx has ended. Run must kill the
// child, and its error must contain the cause of ctx.
func TestCauseOfTalk(t *testing.T) {
	t.Parallel()
	enough := errors.New("enough")
	for range 20 { // the goroutine that kills the child sees both ends at once
		ctx, cancel := context.WithCancelCause(t.Context())
		err := child.Run(ctx, sh("sleep 1000"), func(context.Context, *child.Process) error {
			cancel(enough)
			return nil
		})
		if e, ok := errors.AsType[*child.ExitError](err); !ok || !errors.Is(e.Killed, enough) {
			t.Fatalf("%v, want a death with the cause of ctx", err)
		}
	}
}

// TestWriteToNobody writes to a child that does not read. The write must return when the context
// ends. A write to a child that has closed its input must fail.
func TestWriteToNobody(t *testing.T) {
	enough := errors.New("enough")
	big := make([]byte, 4<<20)
	err := child.Run(t.Context(), sh("while :; do sleep 1000; done"),
		func(ctx context.Context, p *child.Process) error {
			own, cancel := context.WithTimeoutCause(ctx, 50*time.Millisecond, enough)
			defer cancel()
			if err := p.Write(own, big); !errors.Is(err, enough) {
				t.Errorf("Write: %v, want %v", err, enough)
			}
			return nil
		})
	if _, ok := errors.AsType[*child.ExitError](err); !ok {
		t.Errorf("Run: %v", err)
	}
	_ = child.Run(t.Context(), sh("exec 0<&-; sleep 0.1"),
		func(ctx context.Context, p *child.Process) error {
			if err := p.Write(ctx, big); !errors.Is(err, child.ErrNotReading) {
				t.Errorf("Write to a closed input: %v", err)
			}
			return nil
		})
}

// TestStandardError checks that standard error is logged at a limited rate, that log lines are
// bounded, and that omitted lines are counted.
func TestStandardError(t *testing.T) {
	var log bytes.Buffer
	s := sh(`i=0; while [ $i -lt 5000 ]; do echo "line $i" >&2; i=$((i+1)); done
		printf 'x%.0s' $(seq 5000) >&2; printf 'the end' >&2; exit 1`)
	s.Env = []string{"PATH"}
	s.Log = slog.New(slog.NewTextHandler(&log, nil))
	s.Attrs = []any{"worker", "w"}
	began := time.Now()
	_, err := output(t, s, "")
	most := 20 + 5*int(time.Since(began).Seconds()+1) + 2
	text := log.String()
	if n := strings.Count(text, "\n"); n < 20 || n > most {
		t.Errorf("%d lines in the log, want 20 to %d", n, most)
	}
	if !strings.Contains(text, "text=\"line 0\" worker=w") || !strings.Contains(text, "omitted") ||
		len(text) > most*1200 {
		t.Errorf("the log: %.2000s", text)
	}
	if e, ok := errors.AsType[*child.ExitError](err); !ok ||
		!strings.HasSuffix(e.Stderr, "the end") || len(e.Stderr) > 300 {
		t.Errorf("%v", err)
	}
}

// TestLimits checks that the kernel enforces the memory and processor time limits.
func TestLimits(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("skipped: limits of children need Linux")
	}
	s := sh("read go; ulimit -v; ulimit -t")
	s.Memory, s.CPU = 256<<20, 1500*time.Millisecond
	if out, err := output(t, s, "go\n"); err != nil || out != fmt.Sprintf("%d\n2\n", 256<<10) {
		t.Errorf("the limits of a child are %q (%v)", out, err)
	}
	s = sh("read go; while :; do :; done")
	s.CPU = time.Second
	_, err := output(t, s, "go\n")
	if e, ok := errors.AsType[*child.ExitError](err); !ok || !e.Signalled {
		t.Errorf("a child that never rests: %v, want the end of its processor time", err)
	}
}

func TestValidate(t *testing.T) {
	good := child.Spec{Command: []string{"/opt/my app/run", ""}, Env: []string{"PATH"},
		Memory: 1 << 30}
	if err := good.Validate(); err != nil {
		t.Errorf("%+v: %v", good, err)
	}
	for key, s := range map[string]child.Spec{
		"command[0]": {Command: []string{"cat -n"}},
		"command[1]": {Command: []string{"cat", "a\x00b"}},
		"env[0]":     {Command: []string{"cat"}, Env: []string{""}},
		"env[1]":     {Command: []string{"cat"}, Env: []string{"A", "A"}},
		"memory":     {Command: []string{"cat"}, Memory: stream.Size(1)},
		"cpu":        {Command: []string{"cat"}, CPU: -1},
	} {
		if e, ok := errors.AsType[*stream.OptionError](s.Validate()); !ok || e.Key != key {
			t.Errorf("%+v: %v, want an error at %s", s, e, key)
		}
	}
}
