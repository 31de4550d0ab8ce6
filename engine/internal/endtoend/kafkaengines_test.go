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
// with three that share the group. It reports the CPU seconds of the three as a multiple of those
// of the one. The median of this ratio should be at most 1.1. The same is measured with bare
// consumers of the client library, which commit once a second as the engine does. They show how
// much of the difference is caused by the library. All members run on one CPU. On several CPUs,
// processes of one machine can slow each other down by sharing caches and memory, as members on
// machines of their own do not.
func BenchmarkKafkaEngines(b *testing.B) {
	s := startTopics(b)
	b.Run("engines", func(b *testing.B) { s.compareMembers(b, s.engine) })
	b.Run("bare-consumers", func(b *testing.B) { s.compareMembers(b, s.bareMember) })
}

// compareMembers reports two ratios of the CPU seconds of three members to those of one member. The
// first ratio is for whole processes. The second one omits the CPU seconds for starting, joining
// the group and stopping.
func (s *topics) compareMembers(b *testing.B, start func(group string) *exec.Cmd) {
	const rounds = 7
	s.b = b
	fixed := s.cpuOf(1, start, true)
	fixedOfThree := s.cpuOf(3, start, true)
	b.Logf("CPU seconds without records: %.2f with one member, %.2f with three", fixed,
		fixedOfThree)
	var whole, records []float64
	for range rounds {
		one, three := s.cpuOf(1, start, false), s.cpuOf(3, start, false)
		b.Logf("CPU seconds: %.2f with one member, %.2f with three", one, three)
		whole = append(whole, three/one)
		records = append(records, (three-fixedOfThree)/(one-fixed))
	}
	slices.Sort(whole)
	slices.Sort(records)
	b.ReportMetric(whole[rounds/2], "CPU-of-three/one")
	b.ReportMetric(records[rounds/2], "CPU-of-three/one-without-start")
	b.ReportMetric(0, "ns/op")
}

// engine returns a process that reads the topic in a group and drops the records.
func (s *topics) engine(group string) *exec.Cmd {
	s.b.Helper()
	bin, err := program()
	if err != nil {
		s.b.Fatal(err)
	}
	config := write(s.b, filepath.Join(s.b.TempDir(), "penstock.yaml"), fmt.Sprintf(`
state: ./state
pipelines:
  speed:
    source: { kafka: { brokers: [%q], topics: [in], group: %s } }
    sink: drop
`, s.url, group))
	return onOneCPU(bin, "run", config)
}

// onOneCPU returns a command that runs on the first CPU, if the system has taskset.
func onOneCPU(name string, args ...string) *exec.Cmd {
	if _, err := exec.LookPath("taskset"); err != nil {
		return exec.Command(name, args...)
	}
	return exec.Command("taskset", append([]string{"-c", "0", name}, args...)...)
}

// bareMember returns a process that does the same with the client library alone.
func (s *topics) bareMember(group string) *exec.Cmd {
	cmd := onOneCPU(os.Args[0])
	cmd.Env = bareEnv("kafka-member", s.url, group, "")
	return cmd
}

// cpuOf starts a number of processes in a new group and stops them when all records are committed.
// It returns their CPU seconds. If caughtUp is true, there are no records to read.
func (s *topics) cpuOf(members int, start func(group string) *exec.Cmd, caughtUp bool) float64 {
	s.b.Helper()
	group := s.group()
	if caughtUp {
		s.commitAll(group)
	}
	var running []*exec.Cmd
	for range members {
		cmd := start(group)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			s.b.Fatal(err)
		}
		s.b.Cleanup(func() { _ = cmd.Process.Kill() })
		running = append(running, cmd)
	}
	await(s.b, 3*time.Minute, "all members have joined and all records are committed", func() bool {
		groups, err := s.admin.DescribeGroups(s.b.Context(), group)
		if err != nil || groups[group].State != "Stable" || len(groups[group].Members) != members {
			return false
		}
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
			s.b.Fatalf("a member has ended with %v", err)
		}
		spent += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	return spent.Seconds()
}

// commitAll commits the ends of the topic's partitions.
func (s *topics) commitAll(group string) {
	s.b.Helper()
	ends, err := s.admin.ListEndOffsets(s.b.Context(), "in")
	if err == nil {
		err = s.admin.CommitAllOffsets(s.b.Context(), group, ends.Offsets())
	}
	if err != nil {
		s.b.Fatal(err)
	}
}
