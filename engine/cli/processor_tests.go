package cli

import (
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/internal/osfs"
	"github.com/penstock-io/penstock/engine/internal/trial"
	"github.com/penstock-io/penstock/stream"
)

type testFlags struct {
	json  bool
	junit string
}

func (p *program) testCommand() *cobra.Command {
	var f testFlags
	cmd := &cobra.Command{
		Use:   "test [--json] [--junit FILE] CONFIG",
		Short: "Run the unit tests of a config",
		Long: `Test runs the tests under ` + "`tests:`" + ` in a config. Each sends input records
through the processors of a route and compares the results with the expected
records and dead letters. It reads no source, opens no sink and keeps no state.

It prints the differences of each failed test, and the processors that changed no record
in any test. Exit code 1: a test has failed, or there is none.`,
		Example: `  penstock test penstock.yaml
  penstock test --junit report.xml penstock.yaml`,
		Args: needs("the path of a config"),
		RunE: func(cmd *cobra.Command, args []string) error { return runTests(p, cmd, args[0], f) },
	}
	cmd.Flags().BoolVar(&f.json, "json", false, "print one line of JSON for each test, and one for all")
	cmd.Flags().StringVar(&f.junit, "junit", "", "write the results into `FILE` as JUnit XML")
	return cmd
}

// testResult is the result of one test in `test --json`.
type testResult struct {
	Name        string   `json:"name"`
	Pipeline    string   `json:"pipeline"`
	Route       string   `json:"route"`
	OK          bool     `json:"ok"`
	Seconds     float64  `json:"seconds"`
	Differences []string `json:"differences,omitempty"`
	Error       string   `json:"error,omitempty"` // set if the test could not run to its end
}

// testSummary is the last line of `test --json`.
type testSummary struct {
	OK        bool     `json:"ok"`
	Tests     int      `json:"tests"`
	Failed    int      `json:"failed"`
	Unchanged []string `json:"processors_without_change"` // "pipeline/route: 2 where"
}

func runTests(p *program, cmd *cobra.Command, path string, f testFlags) error {
	c, err := engine.Load(path, p.components...)
	if err != nil {
		return err
	}
	if len(c.Tests) == 0 {
		return fmt.Errorf("%s has no tests; add `tests:`, each with a name, input and expect", path)
	}
	used := coverage{}
	results := make([]testResult, len(c.Tests))
	summary := testSummary{Tests: len(c.Tests)}
	for i := range c.Tests {
		results[i] = runTest(cmd.Context(), &c, &c.Tests[i], used)
		if !results[i].OK {
			summary.Failed++
		}
	}
	summary.OK, summary.Unchanged = summary.Failed == 0, used.unchanged(&c)
	if f.junit != "" {
		if err := writeJUnit(f.junit, path, results); err != nil {
			return err
		}
	}
	if err := printTests(cmd.OutOrStdout(), f.json, results, summary); err != nil {
		return err
	}
	if summary.Failed > 0 {
		return fmt.Errorf("%d of %d tests failed", summary.Failed, summary.Tests)
	}
	return nil
}

// coverage counts, for each route ("pipeline/route"), the records that each of its processors has
// changed in the tests. The command reports processors that have changed none.
type coverage map[string][]int

func (c coverage) add(route string, steps []trial.Step) {
	counts := c[route]
	for i, s := range steps[1:] {
		if i == len(counts) {
			counts = append(counts, 0)
		}
		counts[i] += s.Changed
	}
	c[route] = counts
}

// unchanged returns the names of the processors that have changed no record.
func (c coverage) unchanged(cfg *config.Config) []string {
	out := []string{}
	for p, r := range cfg.Routes() {
		counts := c[p.Name+"/"+r.Name]
		for i, u := range r.Processors {
			if i >= len(counts) || counts[i] == 0 {
				out = append(out,
					fmt.Sprintf("%s/%s: %d %s", p.Name, r.Name, i+1, u.Component.Name))
			}
		}
	}
	return out
}

// runTest runs one test with new instances of the processors.
func runTest(ctx context.Context, c *config.Config, t *config.Test, used coverage) testResult {
	began := time.Now()
	out := testResult{Name: t.Name}
	p, r, err := c.Route(t.Pipeline, t.Route)
	var chain *trial.Chain
	if err == nil {
		out.Pipeline, out.Route = p.Name, r.Name
		chain, err = trial.New(r, slog.New(slog.DiscardHandler), osfs.New())
	}
	if err == nil {
		err = chain.Run(ctx, func(ctx context.Context) error {
			result, err := chain.Test(ctx, t)
			out.Differences = result.Differences
			if len(result.Steps) > 0 {
				used.add(p.Name+"/"+r.Name, result.Steps)
			}
			return err
		})
	}
	if err != nil {
		out.Error = stream.MaskURLs(err.Error())
	}
	out.OK, out.Seconds = err == nil && len(out.Differences) == 0, time.Since(began).Seconds()
	return out
}

func printTests(w io.Writer, asJSON bool, results []testResult, s testSummary) error {
	if asJSON {
		for _, r := range results {
			if err := writeResult(w, r); err != nil {
				return err
			}
		}
		return writeResult(w, s)
	}
	var b strings.Builder
	for _, r := range results {
		word := "ok  "
		if !r.OK {
			word = "FAIL"
		}
		fmt.Fprintf(&b, "%s  %s/%s  %s\n", word, r.Pipeline, r.Route, printable(r.Name))
		for _, d := range r.problems() {
			for line := range strings.Lines(d) {
				fmt.Fprintf(&b, "      %s\n", printable(strings.TrimSuffix(line, "\n")))
			}
		}
	}
	fmt.Fprintf(&b, "%d tests, %d failed\n", s.Tests, s.Failed)
	for _, name := range s.Unchanged {
		fmt.Fprintf(&b, "no test changes a record with processor %s\n", name)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	return nil
}

func (r *testResult) problems() []string {
	all := slices.Clone(r.Differences)
	if r.Error != "" {
		all = append(all, r.Error)
	}
	return all
}

type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Time     float64     `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Time    float64       `xml:"time,attr"`
	Failure *junitFailure `xml:"failure"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

func writeJUnit(path, name string, results []testResult) error {
	suite := junitSuite{Name: name, Tests: len(results)}
	for _, r := range results {
		c := junitCase{Class: r.Pipeline + "/" + r.Route, Name: r.Name, Time: r.Seconds}
		if !r.OK {
			suite.Failures++
			problems := r.problems()
			message, _, _ := strings.Cut(problems[0], "\n")
			c.Failure = &junitFailure{message, strings.Join(problems, "\n")}
		}
		suite.Time += r.Seconds
		suite.Cases = append(suite.Cases, c)
	}
	text, err := xml.MarshalIndent(suite, "", "  ")
	if err == nil {
		err = os.WriteFile(path, append([]byte(xml.Header), append(text, '\n')...), 0o644)
	}
	if err != nil {
		return fmt.Errorf("test: --junit: %w", err)
	}
	return nil
}
