// Command remote-workers runs one reader and twelve workers of unequal speed, each as a separate
// process, with a database. Meanwhile it kills and restarts one worker, drains one, and adds two.
//
// It does the same work twice. In the first run, a hash decides which worker gets a batch, and
// windows are fixed. In the second run, the workers advertise their windows, and the reader uses
// these windows.
//
//	go run ./engine/examples/remote-workers [-seconds 10] [-postgres URL]
package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/penstock-io/penstock/engine/cli"
	"github.com/penstock-io/penstock/engine/connector/all"
)

// rates are the limits of the workers in batches per second. Their sum is 137.
var rates = []float64{20, 20, 20, 20, 10, 10, 10, 10, 5, 5, 4, 3}

const batchRecords = 20

// algorithms are the two compared configurations of the reader.
var algorithms = []struct{ title, flow string }{
	{"before: by hash, fixed windows", "{ dispatch: hash, window: fixed, size: 64, timeout: 50s }"},
	{"after: advertised windows", "{ window: credit }"},
}

// longest is the maximum duration of the program.
const longest = 10 * time.Minute

// settings are the parameters of the whole comparison.
type settings struct {
	seconds  float64 // duration of one run if all workers work at their limits
	postgres string  // URL; empty means SQLite
}

func main() {
	if isChild() {
		cli.Main(all.Components()...)
		return
	}
	var s settings
	flag.Float64Var(&s.seconds, "seconds", 10, "that the workers need together, at their limits")
	flag.StringVar(&s.postgres, "postgres", "", "`URL` of a database, in place of a SQLite file")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	if err := compare(ctx, os.Stdout, s); err != nil {
		fmt.Fprintln(os.Stderr, "remote-workers:", err)
		os.Exit(1)
	}
}

// isChild reports whether this process is a worker or the reader, and not the main process.
func isChild() bool {
	return len(os.Args) > 1 && (os.Args[1] == "worker" || os.Args[1] == "run")
}

// outcome is the result of one run.
type outcome struct {
	seconds            float64
	stored, distinct   int
	attempts, repeated int
}

func compare(ctx context.Context, out io.Writer, s settings) error {
	capacity := 0.0
	for _, r := range rates {
		capacity += r * batchRecords
	}
	records := int(capacity * s.seconds)
	fmt.Fprintf(out, "%d records; %d workers can take %.0f records/s together. One is killed and "+
		"restarted, one drains, two join.\n\n", records, len(rates), capacity)
	const row = "%-32s %8s %10s %9s %10s %6s %6s\n"
	fmt.Fprintf(out, row, "", "seconds", "records/s", "of limit", "repeated", "lost", "twice")
	for _, a := range algorithms {
		o, err := run(ctx, s, a.flow, records)
		if err != nil {
			return fmt.Errorf("%s: %w", a.title, err)
		}
		rate := float64(o.distinct) / o.seconds
		fmt.Fprintf(out, row, a.title, fmt.Sprintf("%.1f", o.seconds), fmt.Sprintf("%.0f", rate),
			fmt.Sprintf("%.2f", rate/capacity), fmt.Sprint(o.repeated),
			fmt.Sprint(records-o.distinct), fmt.Sprint(o.stored-o.distinct))
		if o.distinct != records || o.stored != records {
			return fmt.Errorf("%s: %d rows of %d records are stored, want each of %d once",
				a.title, o.stored, o.distinct, records)
		}
	}
	return nil
}

// run does the work once.
func run(ctx context.Context, s settings, flow string, records int) (o outcome, err error) {
	dir, err := os.MkdirTemp("", "remote-workers-")
	if err != nil {
		return o, err
	}
	defer os.RemoveAll(dir)
	db, err := openStore(s.postgres, dir)
	if err != nil {
		return o, err
	}
	defer db.Close()
	if err := writeRecords(filepath.Join(dir, "spool"), records); err != nil {
		return o, err
	}
	p, err := startPool(dir, flow, db.sink)
	if err != nil {
		return o, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.printed())
		}
		p.close()
	}()
	for _, r := range rates {
		if err := p.add(ctx, r); err != nil {
			return o, err
		}
	}
	begun := time.Now()
	read, err := startReader(ctx, p)
	if err != nil {
		return o, err
	}
	defer read.kill()
	if err := change(ctx, p, db, read, records); err != nil {
		return o, err
	}
	if err := read.wait(&o); err != nil {
		return o, err
	}
	o.seconds = time.Since(begun).Seconds()
	const count = "SELECT count(*), count(DISTINCT id) FROM landed"
	return o, db.QueryRow(count).Scan(&o.stored, &o.distinct)
}

// change changes the set of workers. When a quarter of the records is stored, it kills one worker,
// drains one and adds two. When half of the records are stored, it starts the killed worker again.
func change(ctx context.Context, p *pool, db *store, read *reader, records int) error {
	if err := read.until(db.DB, records/4); err != nil {
		return err
	}
	if err := p.workers[0].kill(); err != nil {
		return err
	}
	for _, r := range []float64{rates[0], rates[4]} {
		if err := p.add(ctx, r); err != nil {
			return err
		}
	}
	if err := p.drain(p.workers[4]); err != nil {
		return err
	}
	if err := read.until(db.DB, records/2); err != nil {
		return err
	}
	return p.start(ctx, 0)
}

// reader is the process that reads the records and sends them to the workers.
type reader struct {
	cmd    *exec.Cmd
	stdout bytes.Buffer
	ended  chan struct{} // closed after err is set
	err    error
}

func startReader(ctx context.Context, p *pool) (*reader, error) {
	r := &reader{ended: make(chan struct{})}
	r.cmd = p.child(ctx, []string{"RESOLVER=" + p.names.Addr()}, "run", "--once", "--json",
		p.file("reader.yaml"))
	r.cmd.Stdout = &r.stdout
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { r.err = r.cmd.Wait(); close(r.ended) }()
	return r, nil
}

const askEvery = 20 * time.Millisecond

// until waits until the given number of records is stored. It returns early if the reader has
// ended.
func (r *reader) until(db *sql.DB, records int) error {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		select {
		case <-r.ended:
			return r.err
		case <-tick.C:
			n := 0
			if err := db.QueryRow("SELECT count(*) FROM landed").Scan(&n); err != nil {
				return err
			}
			if n >= records {
				return nil
			}
		}
	}
}

// wait waits for the end of the reader, and adds the reader's counts to o.
func (r *reader) wait(o *outcome) error {
	<-r.ended
	if r.err != nil {
		return fmt.Errorf("reader: %w", r.err)
	}
	var result struct {
		Pipelines []struct{ Attempts, Redelivered int }
	}
	if err := json.Unmarshal(r.stdout.Bytes(), &result); err != nil {
		return fmt.Errorf("reader: %w", err)
	}
	for _, p := range result.Pipelines {
		o.attempts, o.repeated = o.attempts+p.Attempts, o.repeated+p.Redelivered
	}
	return nil
}

func (r *reader) kill() {
	_ = r.cmd.Process.Kill() // usually it has already ended
	<-r.ended
}
