package main

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// actAs is the variable that makes the test binary behave as a program of the guides.
const actAs = "PENSTOCK_GUIDE_PROGRAM"

func TestMain(m *testing.M) {
	switch os.Getenv(actAs) {
	case "penstock":
		program().Main()
	case "sqlite3":
		if err := runSQL(os.Args[1], os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	default:
		os.Exit(m.Run())
	}
}

// runSQL prints the rows of a query as the program sqlite3 does.
func runSQL(path, query string) error {
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return err
	}
	defer db.Close()
	rows, err := db.Query(query)
	if err != nil {
		return err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	for rows.Next() {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(sql.NullString)
		}
		if err := rows.Scan(values...); err != nil {
			return err
		}
		texts := make([]string, len(values))
		for i, v := range values {
			texts[i] = v.(*sql.NullString).String
		}
		fmt.Println(strings.Join(texts, "|"))
	}
	return rows.Err()
}

var (
	savedFile    = regexp.MustCompile("(?s)Save this as `([^`]+)`:\n\n```\\w+\n(.*?)```")
	consoleBlock = regexp.MustCompile("(?s)```console\n(.*?)```")
	guideAddress = regexp.MustCompile(`127\.0\.0\.1:\d+`)
)

// step is one command of a guide and the output that the guide shows for it.
type step struct{ command, output string }

// stepsOf returns the commands of the console blocks of a page, in order.
func stepsOf(page string) (steps []step) {
	for _, block := range consoleBlock.FindAllStringSubmatch(page, -1) {
		for line := range strings.Lines(block[1]) {
			if command, isCommand := strings.CutPrefix(line, "$ "); isCommand {
				steps = append(steps, step{command: command})
			} else {
				steps[len(steps)-1].output += line
			}
		}
	}
	return steps
}

// TestGuides runs each guide that has console blocks in a new directory. It saves the files that
// the guide shows, runs the guide's commands in one shell, and compares their output with the page.
// It also checks that every guide has the section "Check that it worked".
func TestGuides(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the guides need a POSIX shell")
	}
	paths, err := filepath.Glob("../../../docs/guides/*.md")
	if err != nil {
		t.Fatal(err)
	}
	run := 0
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "\n## Check that it worked\n") {
			t.Errorf("%s does not end with how to check that it worked", path)
		}
		page := withFreePorts(t, string(text))
		if len(stepsOf(page)) == 0 {
			continue
		}
		run++
		t.Run(filepath.Base(path), func(t *testing.T) {
			if strings.Contains(page, "python3") {
				if _, err := exec.LookPath("python3"); err != nil {
					t.Skip("python3 is not installed")
				}
			}
			runGuide(t, page)
		})
	}
	if run < 4 {
		t.Errorf("%d guides have console blocks, want 4 or more: their form has changed", run)
	}
}

// withFreePorts replaces each loopback address of a page with a free one.
func withFreePorts(t *testing.T, page string) string {
	t.Helper()
	free := map[string]string{}
	return guideAddress.ReplaceAllStringFunc(page, func(address string) string {
		if free[address] == "" {
			free[address] = connectortest.FreeAddress(t)
		}
		return free[address]
	})
}

func runGuide(t *testing.T, page string) {
	t.Helper()
	dir, bin := t.TempDir(), t.TempDir()
	for _, name := range []string{"penstock", "sqlite3"} {
		script := fmt.Sprintf("#!/bin/sh\n%s=%s exec '%s' \"$@\"\n", actAs, name, os.Args[0])
		save(t, filepath.Join(bin, name), script, 0o700)
	}
	for _, m := range savedFile.FindAllStringSubmatch(page, -1) {
		save(t, filepath.Join(dir, m[1]), m[2], 0o600)
	}
	steps, script := stepsOf(page), "set -e\n"
	for i, s := range steps {
		script += fmt.Sprintf("{ %s} >'%s/out.%d' 2>'%s/err.%d'\n", s.command, bin, i, bin, i)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	sh := exec.CommandContext(ctx, "sh", "-c", script+"wait\n")
	sh.Dir, sh.WaitDelay = dir, time.Second
	sh.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	runErr := sh.Run()
	for i, s := range steps {
		out, err := os.ReadFile(filepath.Join(bin, "out."+strconv.Itoa(i)))
		if err != nil {
			t.Fatalf("the guide ended before %s: %v", s.command, runErr)
		}
		if s.output != "" && !shows(s.output, string(out)) || runErr != nil {
			log, _ := os.ReadFile(filepath.Join(bin, "err."+strconv.Itoa(i)))
			t.Logf("$ %s%s%s", s.command, out, log)
		}
		if s.output != "" && !shows(s.output, string(out)) {
			t.Errorf("the page shows\n%s", s.output)
		}
	}
	if runErr != nil {
		t.Error(runErr)
	}
}

func save(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path, []byte(text), mode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// shows reports whether a page shows the output of a command. A first or last line "..." on the
// page stands for any lines. White space around lines does not count.
func shows(page, output string) bool {
	trim := func(s string) []byte {
		var b bytes.Buffer
		for line := range strings.Lines(s) {
			b.WriteString(strings.TrimSpace(line) + "\n")
		}
		return b.Bytes()
	}
	if end, found := strings.CutPrefix(page, "...\n"); found {
		return bytes.HasSuffix(trim(output), trim(end))
	}
	if start, found := strings.CutSuffix(page, "...\n"); found {
		return bytes.HasPrefix(trim(output), trim(start))
	}
	return bytes.Equal(trim(page), trim(output))
}
