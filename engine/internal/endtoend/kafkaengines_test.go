//go:build unix

package endtoend

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

// BenchmarkKafkaEngines reads a topic of a real broker and drops the records, with one engine and
// with three that share the group. It compares their CPU seconds for a million records. The median
// of the ratios should be at most 1.1.
func BenchmarkKafkaEngines(b *testing.B) {
	const rounds = 3
	s := startTopics(b)
	var ratios []float64
	for range rounds {
		one, three := s.cpuOf(1), s.cpuOf(3)
		ratios = append(ratios, three/one)
		b.Logf("CPU seconds for a million records: %.2f with one engine, %.2f with three",
			one, three)
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "CPU-of-three/one")
	b.ReportMetric(0, "ns/op")
}

// cpuOf reads the topic and drops the records with a number of engines. It returns their CPU
// seconds for a million records, including start and stop.
func (s *topics) cpuOf(engines int) float64 {
	s.b.Helper()
	bin, err := program()
	if err != nil {
		s.b.Fatal(err)
	}
	group := s.group()
	dir := s.b.TempDir()
	var running []*exec.Cmd
	for i := range engines {
		config := write(s.b, filepath.Join(dir, fmt.Sprint(i), "penstock.yaml"), fmt.Sprintf(`
state: ./state
pipelines:
  speed:
    source: { kafka: { brokers: [%q], topics: [in], group: %s } }
    sink: drop
`, s.url, group))
		cmd := exec.Command(bin, "run", config)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			s.b.Fatal(err)
		}
		s.b.Cleanup(func() { _ = cmd.Process.Kill() })
		running = append(running, cmd)
	}
	await(s.b, 3*time.Minute, "all records are committed", func() bool {
		lags, err := s.admin.Lag(s.b.Context(), group)
		if err != nil || lags.Error() != nil {
			return false
		}
		lag, known := lagOf(lags[group].Lag["in"])
		return known && lag == 0
	})
	var spent time.Duration
	for _, cmd := range running {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			s.b.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			s.b.Fatalf("an engine has ended with %v", err)
		}
		spent += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	return spent.Seconds() / speedRecords * 1e6
}
