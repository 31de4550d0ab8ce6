package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestInterrupted interrupts a run with Ctrl-C. Neither the scratch folder nor a process may
// remain, and no error of the interrupted workload may be reported.
func TestInterrupted(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	told := filepath.Join(t.TempDir(), "told")
	if err := syscall.Mkfifo(told, 0o600); err != nil {
		t.Fatal(err)
	}
	running, err := os.OpenFile(told, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	// a harness that never starts penstock fails, not hangs
	if err := running.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	for _, workload := range []string{"w1", "w3", "w10"} {
		dir := t.TempDir()
		penstock := script(t, "penstock",
			generated+fmt.Sprintf("[ $1 = run ] || exit 0\necho $$ >%s\nexec sleep 60\n", told))
		var said bytes.Buffer
		cmd := exec.Command(self, "-only", workload, "-size", "1MiB", "-pairs", "1", "-dir", dir,
			"-penstock", penstock)
		cmd.Env, cmd.Stderr = append(os.Environ(), harness+"=1"), &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		pid, err := bufio.NewReader(running).ReadString('\n')
		if err != nil {
			cmd.Process.Kill()
			t.Fatalf("%s: penstock was not started: %v; it said %s", workload,
				errors.Join(err, cmd.Wait()), said.String())
		}
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		err = cmd.Wait()
		if cmd.ProcessState.ExitCode() != 1 || said.String() != "bench: interrupted\n" {
			t.Errorf("%s: %v, it said %q", workload, err, said.String())
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s: left behind %v, %v", workload, left, err)
		}
		if _, err := os.Stat("/proc/" + strings.TrimSpace(string(pid))); err == nil {
			t.Errorf("%s: penstock still runs as process %s", workload, pid)
		}
	}
}

// TestWrongFlags checks that invalid flags are reported before the first measurement.
func TestWrongFlags(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, want string }{
		{"-only w99", "there are limits, w1, w2"}, {"w1", "-only w1"}, {"-pairs 0", "one at least"},
		{"-size 5", "KiB"},
		{"-penstock /not/there", "make build"}, {"-rival vector=/not/there", "/not/there"},
		{"growth -only lines", "workers, files, size"},
		{"judge", "name files"},
	} {
		cmd := exec.Command(self, strings.Fields(c.args)...)
		cmd.Env = append(os.Environ(), harness+"=1")
		said, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(said), c.want) {
			t.Errorf("bench %s: %v, it said %s", c.args, err, said)
		}
	}
	for _, args := range []string{"-h", "profile -h", "growth -h"} {
		cmd := exec.Command(self, strings.Fields(args)...)
		cmd.Env = append(os.Environ(), harness+"=1")
		if said, err := cmd.CombinedOutput(); err != nil ||
			!strings.Contains(string(said), "-penstock") {
			t.Errorf("bench %s: %v: %s", args, err, said)
		}
	}
}
