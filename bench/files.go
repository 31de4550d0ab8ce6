package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/penstock-io/penstock/bench/load"
)

const toDrop = fromSpool + "    sink: { drop: {} }\n"

// toFile returns a config that writes the unchanged lines to a file.
func toFile(fsync string) string {
	return fromSpool + fmt.Sprintf("    sink: { file: { path: ./out.log, format: "+
		"raw, fsync: %s } }\n", fsync)
}

// copied measures a limit, a program that only copies the input to a new file.
func (e *env) copied(in load.Input, limit string) (measure, error) {
	to := filepath.Join(e.dir, "copy")
	if err := os.RemoveAll(to); err != nil {
		return measure{}, err
	}
	defer os.Remove(to)
	if err := e.warm(in); err != nil {
		return measure{}, err
	}
	return e.limit(in, limit, to)
}

// warm copies the input to a file and removes the file. After that, the machine has free memory
// pages for the output of the next run. Without them, the run could be much slower on a virtual
// machine. The hypervisor takes unused pages away, and getting them back takes up to three times as
// long as copying the input.
func (e *env) warm(in load.Input) error {
	to := filepath.Join(e.dir, "warm")
	_, err := e.limit(in, "copy", to)
	return errors.Join(err, os.Remove(to))
}

// intoFile runs penstock with a new output file. Then it compares the output with the input.
func (e *env) intoFile(in load.Input, config string) (measure, error) {
	j, err := e.job(in, config)
	if err != nil {
		return measure{}, err
	}
	if err := e.warm(in); err != nil {
		return measure{}, err
	}
	r, _, err := j.once()
	m := of(r, in)
	if err != nil {
		return m, err
	}
	defer os.Remove(j.path("out.log"))
	return m, m.compare(in, j.path("out.log"))
}

// compare compares the output file, out, with the input byte by byte. If they differ, it counts the
// missing and the repeated records.
func (m *measure) compare(in load.Input, out string) error {
	at, same, err := firstDifference(in.Path, out)
	if err != nil || same {
		return err
	}
	if err := m.countIn(out); err != nil {
		return err
	}
	if m.lost == 0 && m.repeated == 0 {
		return fmt.Errorf("the output differs from the input in the megabyte at %d, "+
			"with all its records there", at)
	}
	return nil
}

// countIn counts the records in a file by their marks, which contain the number of the line.
func (m *measure) countIn(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	marks := load.NewMarks(m.records)
	if err := marks.AddFrom(f); err != nil {
		return err
	}
	m.take(marks)
	return nil
}

func (m *measure) take(marks *load.Marks) {
	m.lost, m.repeated = marks.Lost(), marks.Repeated()+marks.Unknown()
}

// firstDifference compares two files in blocks of 1 MiB. It returns the offset of the first block
// in which they differ. same is true if there is no such block.
func firstDifference(a, b string) (at int64, same bool, err error) {
	fa, err := os.Open(a)
	if err != nil {
		return 0, false, err
	}
	defer fa.Close()
	fb, err := os.Open(b)
	if err != nil {
		return 0, false, err
	}
	defer fb.Close()
	bufA, bufB := make([]byte, 1<<20), make([]byte, 1<<20)
	for ; ; at += int64(len(bufA)) {
		n, errA := io.ReadFull(fa, bufA)
		k, errB := io.ReadFull(fb, bufB)
		if n != k || !bytes.Equal(bufA[:n], bufB[:k]) {
			return at, false, nil
		}
		if errA != nil || errB != nil {
			return at, true, nil
		}
	}
}
