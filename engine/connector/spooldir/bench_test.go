package spooldir_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/spooldir"
	"github.com/penstock-io/penstock/stream"
)

const logLine = "192.168.%d.7 - - [17/May/2015:10:05:%02d +0000] " +
	"\"GET /presentations/logstash-monitorama-2013/images/kibana-search.png HTTP/1.1\" 200 203023\n"

// logLines returns about size bytes of log lines.
func logLines(size int) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, logLine, i%256, i%60)
	}
	return b.Bytes()
}

// TestReadAllocations checks that reading allocates nothing for a record, and little for a batch.
func TestReadAllocations(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "a.log", string(logLines(8<<20)))
	h := newHost(t, connectortest.FS())
	src := h.source(options(dir, func(o *spooldir.Options) { o.Finished = "keep" }))
	var pool stream.Pool
	r := must(src.Open(t.Context(), newStore().options(false)))
	defer r.Close()
	records := 0
	read := func() {
		b := pool.Get(stream.BatchLimits{})
		if err := r.Read(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		records += b.Origins
		b.Release()
	}
	for range 3 { // listing, first arena
		read()
	}
	records = 0
	allocs := testing.AllocsPerRun(20, read)
	if perBatch := records / 21; allocs > 4 || perBatch < 1000 {
		t.Errorf("%v allocations for a batch of %d records, want at most 4 (a stat of the file), "+
			"none for a record", allocs, perBatch)
	}
}

// count is a minimal reader, for comparison: it reads into a buffer of batch size and counts the
// lines.
func count(b testing.TB, path string, buf []byte) (lines int) {
	f, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	for {
		n, err := f.Read(buf)
		lines += bytes.Count(buf[:n], []byte{'\n'})
		if err == io.EOF {
			return lines
		} else if err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkReadRatio compares the speed of spool_dir with a loop that counts lines with the same
// read size. The two take turns. It reports the median ratio: 1 means that both are equally fast.
func BenchmarkReadRatio(b *testing.B) {
	dir := b.TempDir()
	text := logLines(256 << 20)
	path := put(b, dir, "a.log", string(text))
	want := bytes.Count(text, []byte{'\n'})
	text = nil
	h := newHost(b, connectortest.FS())
	var pool stream.Pool
	buf := make([]byte, 256<<10)
	var ratios []float64
	for b.Loop() {
		start := time.Now()
		if n := count(b, path, buf); n != want {
			b.Fatalf("counted %d lines, want %d", n, want)
		}
		limit := time.Since(start)
		start = time.Now()
		src := h.source(options(dir, func(o *spooldir.Options) { o.Finished = "keep" }))
		r := must(src.Open(b.Context(), newStore().options(true)))
		n := 0
		for err := error(nil); err != io.EOF; {
			batch := pool.Get(stream.BatchLimits{Records: 1 << 30})
			if err = r.Read(b.Context(), batch); err != nil && err != io.EOF {
				b.Fatal(err)
			}
			n += batch.Origins
			batch.Release()
		}
		r.Close()
		if n != want {
			b.Fatalf("read %d records, want %d", n, want)
		}
		ratios = append(ratios, limit.Seconds()/time.Since(start).Seconds())
	}
	slices.Sort(ratios)
	b.Logf("ratios of %d pairs: %.2f", len(ratios), ratios)
	b.ReportMetric(ratios[len(ratios)/2], "of-the-limit")
}

// BenchmarkSmallFiles reads 10,000 files of 5 kB and renames them. It compares that with reading
// each file by its name.
func BenchmarkSmallFiles(b *testing.B) {
	text := string(logLines(5000))
	h := newHost(b, connectortest.FS())
	var ratios []float64
	for b.Loop() {
		b.StopTimer()
		dir := b.TempDir()
		for i := range 10_000 {
			put(b, dir, fmt.Sprintf("%05d.log", i), text)
		}
		// otherwise the first sync of a rename would wait for all recently written data
		d := must(os.Open(dir))
		if err := errors.Join(d.Sync(), d.Close()); err != nil {
			b.Fatal(err)
		}
		start := time.Now()
		names, err := filepath.Glob(filepath.Join(dir, "*.log"))
		if err != nil {
			b.Fatal(err)
		}
		for _, name := range names {
			if _, err := os.ReadFile(name); err != nil {
				b.Fatal(err)
			}
		}
		limit := time.Since(start)
		b.StartTimer()
		start = time.Now()
		w := &fixture{t: b, dir: dir, host: h, store: newStore(), finish: true,
			pending: make(map[string]stream.Partition)}
		w.src = h.source(options(dir, nil))
		if err := w.once(); err != nil {
			b.Fatal(err)
		}
		ratios = append(ratios, time.Since(start).Seconds()/limit.Seconds())
		if len(w.pending) > 0 || len(w.store.order) != 10_000 {
			b.Fatalf("%d of %d files wait: %v", len(w.pending), len(w.store.order), w.refused)
		}
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "times-reading")
}
