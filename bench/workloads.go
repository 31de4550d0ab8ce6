package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// workload is one question: how much of a limit does penstock reach?
type workload struct {
	name, about           string
	limitName, limitAbout string
	target                float64 // of the limit
	cpuTarget             float64 // CPU-s/GB; 0: none
	limit                 func(o options, in input) (run, error)
	penstock              func(o options, in input) (run, error)
}

const head = `
state: ./state
pipelines:
  bench:
    source: { spool_dir: { path: ./spool, finished: keep } }
`

var workloads = []workload{
	{
		name: "w1", about: "spool_dir -> drop, raw",
		limitName: "go_count", limitAbout: "a Go loop that reads 256 KiB and counts line ends", target: 0.5, cpuTarget: 0.25,
		limit:    func(o options, in input) (run, error) { return self("count", in.path) },
		penstock: func(o options, in input) (run, error) { return penstockOnce(o, in, head+"    sink: { drop: {} }\n") },
	},
	{
		name: "w2", about: "spool_dir -> file, raw, fsync: interval",
		limitName: "go_copy", limitAbout: "a Go copy by 256 KiB reads and writes", target: 0.6,
		limit:    func(o options, in input) (run, error) { return copied(o, in, "copy") },
		penstock: func(o options, in input) (run, error) { return toFile(o, in, "interval") },
	},
	{
		name: "w2_ack", about: "spool_dir -> file, raw, fsync: ack",
		limitName: "go_copy_fsync", limitAbout: "the same copy and one fsync at its end", target: 0.7,
		limit:    func(o options, in input) (run, error) { return copied(o, in, "copy_fsync") },
		penstock: func(o options, in input) (run, error) { return toFile(o, in, "ack") },
	},
	{
		name: "w3", about: "spool_dir -> HTTP, 4 endpoints, bodies of 256 KiB, acked positions",
		limitName: "go_post_4", limitAbout: "a bare Go poster of 256 KiB bodies on 4 connections", target: 0.5, cpuTarget: 1.0,
		limit: func(o options, in input) (run, error) {
			return posted(in, func(urls []string) (run, error) { return self(append([]string{"post", in.path}, urls...)...) })
		},
		penstock: func(o options, in input) (run, error) {
			return posted(in, func(urls []string) (run, error) {
				sink := fmt.Sprintf("    sink: { http: { endpoints: [%s], body: raw } }\n", strings.Join(urls, ", "))
				return penstockOnce(o, in, head+sink)
			})
		},
	},
}

// copied runs a copy limit into a fresh file.
func copied(o options, in input, limit string) (run, error) {
	to := filepath.Join(o.dir, "copy")
	if err := os.RemoveAll(to); err != nil {
		return run{}, err
	}
	r, err := self(limit, in.path, to)
	os.Remove(to)
	return r, err
}

// toFile runs penstock into a fresh file and holds it against the input, byte for byte.
func toFile(o options, in input, fsync string) (run, error) {
	r, err := penstockOnce(o, in, head+fmt.Sprintf("    sink: { file: { path: ./out.log, format: raw, fsync: %s } }\n", fsync))
	if err != nil {
		return r, err
	}
	out := filepath.Join(o.dir, "run", "out.log")
	defer os.Remove(out)
	return r, same(in.path, out)
}

// posted starts a receiver, runs what posts to four of its URLs, and counts what came.
func posted(in input, post func(urls []string) (run, error)) (r run, err error) {
	rec, err := startReceiver()
	if err != nil {
		return r, err
	}
	defer rec.stop()
	if r, err = post(rec.endpoints(4)); err != nil {
		return r, err
	}
	n, err := rec.count()
	if err != nil {
		return r, err
	}
	r.lost, r.repeated = max(0, in.records-n), max(0, n-in.records)
	if r.lost > 0 {
		return r, fmt.Errorf("%d of %d records never arrived", r.lost, in.records)
	}
	return r, nil
}

// same says whether two files hold the same bytes.
func same(a, b string) error {
	fa, err := os.Open(a)
	if err != nil {
		return err
	}
	defer fa.Close()
	fb, err := os.Open(b)
	if err != nil {
		return err
	}
	defer fb.Close()
	bufA, bufB := make([]byte, 1<<20), make([]byte, 1<<20)
	for at := 0; ; at += len(bufA) {
		n, errA := fa.Read(bufA)
		m, errB := fb.Read(bufB)
		if n != m || !bytes.Equal(bufA[:n], bufB[:m]) {
			return fmt.Errorf("%s and %s differ within the megabyte at %d", filepath.Base(a), filepath.Base(b), at)
		}
		if errA != nil || errB != nil {
			return nil
		}
	}
}
