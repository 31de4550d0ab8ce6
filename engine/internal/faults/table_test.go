//go:build linux

package faults

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// faultCase is one row of the table of cases.
type faultCase struct {
	name         string // FAMILY/FAULT/VARIANT
	holds        string // the expected result, in one line
	run          func(r *rig)
	slow         bool   // not part of the short form
	knownFailing string // the known defect; empty if the case passes
}

// shortShare selects the cases of the short form: every shortShare-th case. Cases that are slow are
// not part of it.
const shortShare = 4

// cases returns the table: every case of every family. PENSTOCK_FAULTS=list prints it.
func cases() []faultCase {
	return slices.Concat(
		httpCases(),     // receivers that break the protocol
		postgresCases(), // connections, servers and tables of PostgreSQL
		signalCases(),   // signals at critical moments
		daemonCases(),   // /readyz and the status of a running process
		stateCases(),    // a state directory that is damaged, hidden or shared
		configCases(),   // configs that must be refused
		routeCases(),    // one bad route of two, and secrets
		limitCases(),    // few descriptors, small files, full disks
		stderrCases(),   // outputs that block, are closed or full
		fileCases(),     // files that are damaged, unreadable, or change while they are read
		childCases(),    // faulty children with protocol ndjson
		execCases(),     // workers and filters that misbehave
	)
}

// TestFaults runs the table. PENSTOCK_FAULTS is full, short or list.
func TestFaults(t *testing.T) {
	mode := os.Getenv("PENSTOCK_FAULTS")
	table := cases()
	switch mode {
	case "":
		t.Skip("skipped: make faults runs these cases")
	case "list":
		for _, c := range table {
			fmt.Printf("%-60s %s\n", c.name, c.holds)
		}
		return
	case "short", "full":
	default:
		t.Fatalf("PENSTOCK_FAULTS=%q is not one of full, short, list", mode)
	}
	if _, err := program(); err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath("psql"); err == nil && os.Getenv("PENSTOCK_RECIPES") != "" {
		postgres = connectortest.StartServer(t, "postgres", "psql")
	}
	var mu sync.Mutex
	tried, held := 0, 0
	var failing, known []string
	t.Run("cases", func(t *testing.T) {
		for i, c := range table {
			if mode == "short" && (c.slow || i%shortShare != 0) {
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				if postgres == nil && strings.HasPrefix(c.name, "postgres") {
					t.Skip("skipped: PENSTOCK_RECIPES names no folder of recipes, " +
						"or there is no psql")
				}
				findings := c.try(t)
				mu.Lock()
				defer mu.Unlock()
				tried++
				switch {
				case len(findings) == 0 && c.knownFailing == "":
					held++
				case len(findings) == 0:
					held++
					t.Errorf("%s holds now: remove its knownFailing mark (%s)", c.name,
						c.knownFailing)
				case c.knownFailing != "":
					known = append(known, c.name+": "+c.knownFailing)
					t.Logf("known to fail (%s):\n%s", c.knownFailing, strings.Join(findings, "\n"))
				default:
					failing = append(failing, c.name)
					t.Errorf("must hold: %s\n%s\nreplay: PENSTOCK_FAULTS=full go test -count=1 "+
						"-v -run '%s' ./engine/internal/faults",
						c.holds, strings.Join(findings, "\n"), pattern(t.Name()))
				}
			})
		}
	})
	slices.Sort(known)
	fmt.Printf("faults: %d cases tried, %d held, %d known to fail, %d failed\n", tried, held,
		len(known), len(failing))
	for _, k := range known {
		fmt.Println("  known to fail:", k)
	}
}

// try runs the case in its own folder and returns its findings.
func (c *faultCase) try(t *testing.T) []string {
	dir, err := os.MkdirTemp("", "penstock-fault-")
	if err != nil {
		return []string{err.Error()}
	}
	defer os.RemoveAll(dir)
	r := &rig{t: t, dir: dir}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.run(r)
	}()
	<-done
	for _, f := range slices.Backward(r.cleanups) {
		f()
	}
	return r.findings
}

// pattern quotes the name of a subtest for -run.
func pattern(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

func TestMain(m *testing.M) {
	if len(os.Args) == 5 && os.Args[1] == "child" {
		child(os.Args[2:])
	}
	code := m.Run()
	if os.Getenv("PENSTOCK_FAULTS") != "" {
		if bin, err := program(); err == nil {
			os.RemoveAll(filepath.Dir(bin))
		}
	}
	os.Exit(code)
}
