package endtoend

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// kills returns the number of kills in a crash test: PENSTOCK_KILLS, or a few by default.
func kills(t *testing.T) int {
	t.Helper()
	text := os.Getenv("PENSTOCK_KILLS")
	if text == "" {
		return 6
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("PENSTOCK_KILLS=%q is no number above 0", text)
	}
	return n
}

const killsPerJob = 5

// TestKillFile kills the program repeatedly while it writes a file, and checks that the file
// contains the input exactly once.
func TestKillFile(t *testing.T) {
	t.Parallel()
	rnd := seeded(t)
	for left, job := kills(t)/2, 0; left > 0; job++ {
		dir := t.TempDir()
		input := spool(t, dir, rnd, 12<<20)
		fsync := []string{"ack", "interval"}[job%2]
		config := write(t, filepath.Join(dir, "penstock.yaml"), fmt.Sprintf(`
state: ./state
pipelines:
  crash:
    source: { spool_dir: { path: ./spool, include: ["*.log"], quiet_period: 10ms } }
    sink: { file: { path: ./out.log, format: raw, fsync: %s } }
    batch: { bytes: 16KiB }
    checkpoint: { replay: 512KiB, sync: 50ms }
`, fsync))
		total := size(input)
		written := func() int64 {
			info, err := os.Stat(filepath.Join(dir, "out.log"))
			if err != nil {
				return 0
			}
			return info.Size()
		}
		var struck []int64
		for range killsPerJob {
			if left > 0 && killAt(t, config, rnd, total, written) {
				left--
				struck = append(struck, 100*written()/total)
			}
		}
		once(t, config)
		var want [][]byte
		for _, f := range input {
			want = append(want, f.text)
		}
		if err := interleaved(read(t, filepath.Join(dir, "out.log")), want); err != nil {
			t.Fatalf("job %d: the file is not exactly the input: %v", job, err)
		}
		t.Logf("job %d, fsync: %s: killed at %v %% of the work; the file is exactly the input", job,
			fsync, struck)
	}
}

// TestKillHTTP kills the program while it posts to a server that records all record ids. No record
// may be lost, and each kill may repeat at most checkpoint.replay.
func TestKillHTTP(t *testing.T) {
	t.Parallel()
	rnd := seeded(t)
	left := kills(t) - kills(t)/2
	for job := 0; left > 0; job++ {
		replay := []int64{1 << 20, 256 << 10, 2 << 20}[job%3]
		dir := t.TempDir()
		input := spool(t, dir, rnd, 16<<20)
		server := newLedgerServer(t)
		config := write(t, filepath.Join(dir, "penstock.yaml"), fmt.Sprintf(`
state: ./state
pipelines:
  crash:
    source: { spool_dir: { path: ./spool, include: ["*.log"], quiet_period: 10ms } }
    sink: { http: { endpoints: [%q, %q], body: raw } }
    batch: { bytes: 32KiB }
    checkpoint: { replay: %dB, sync: 50ms }
`, server.URL+"/a", server.URL+"/b", replay))
		total := size(input)
		for range killsPerJob {
			if left == 0 {
				break
			}
			before := server.seenBytes()
			if killAt(t, config, rnd, total, server.seenBytes) {
				left--
			}
			server.generation()
			t.Logf("job %d: killed at %d%% after %d%%", job, 100*server.seenBytes()/total,
				100*before/total)
		}
		once(t, config)
		server.check(t, input, replay)
	}
}

// killAt starts the program and kills it after a random share of the remaining work. It reports
// whether the kill was between 5 and 95 % of the whole work.
func killAt(t *testing.T, config string, rnd *rand.Rand, total int64, progress func() int64) bool {
	t.Helper()
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	cmd := exec.Command(bin, "run", "--once", "--json", config)
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	begun := progress()
	target := begun + (total*9/10-begun)*int64(rnd.IntN(60))/100 + total/20
	poll := time.NewTicker(200 * time.Microsecond)
	defer poll.Stop()
	for progress() < target {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("the program ended by itself: %v\n%s", err, errs.String())
			}
			return false
		case <-poll.C:
		}
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		return false
	}
	<-ended
	share := 100 * progress() / total
	return share >= 5 && share <= 95
}

// spooled is one input file.
type spooled struct {
	name string
	text []byte
}

func size(files []spooled) (n int64) {
	for _, f := range files {
		n += int64(len(f.text))
	}
	return n
}

// spool fills dir/spool with about total bytes of generated files. If PENSTOCK_DATA names a folder
// of real log files, it adds these.
func spool(t *testing.T, dir string, rnd *rand.Rand, total int) (files []spooled) {
	t.Helper()
	for i := range 3 {
		var text []byte
		for n := 0; len(text) < total/3; n++ {
			text = fmt.Appendf(text, "file %d line %d %0*d\n", i, n, 1+rnd.IntN(200), n)
		}
		files = append(files, spooled{fmt.Sprintf("made-%d.log", i), text})
	}
	if real := os.Getenv("PENSTOCK_DATA"); real != "" {
		for _, log := range realLogs(t) {
			files = append(files, spooled{filepath.Base(log), completeLines(read(t, log))})
		}
	}
	for _, f := range files {
		write(t, filepath.Join(dir, "spool", f.name), string(f.text))
	}
	slices.SortFunc(files, func(a, b spooled) int {
		return bytes.Compare([]byte(a.name), []byte(b.name))
	})
	return files
}

// seeded returns a generator whose seed is logged; PENSTOCK_SEED sets it.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("PENSTOCK_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("PENSTOCK_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}
