package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/penstock-io/penstock/bench/load"
	"github.com/penstock-io/penstock/bench/proc"
	"github.com/penstock-io/penstock/bench/receiver"
	"github.com/penstock-io/penstock/bench/rival"
)

// rivalFlags has the values of the flag -rival NAME=PATH.
type rivalFlags map[string]string

func (r rivalFlags) String() string { return "" }

// Set implements flag.Value.
func (r rivalFlags) Set(text string) error {
	name, path, ok := strings.Cut(text, "=")
	if !ok {
		return fmt.Errorf("%q: write NAME=PATH", text)
	}
	r[name] = path
	return nil
}

// findRivals finds the other programs, if the flags ask for them.
func (e *env) findRivals() (err error) {
	if !e.full && !e.figures && len(e.rivals) == 0 {
		return nil
	}
	if e.found, e.absent, err = rival.Find(e.rivals); err != nil {
		return err
	}
	return nil
}

// rivalsIn returns the other programs that support a workload.
func (e *env) rivalsIn(workload string) (all []contender) {
	for _, p := range e.found {
		if p.Does(workload) {
			all = append(all, contender{p.Name, func(e *env, in load.Input) (measure, error) {
				return e.rival(p, workload, in)
			}})
		}
	}
	return all
}

// sayAbsent prints the programs that are not installed, with their results on other machines.
func (e *env) sayAbsent(workload string) {
	if e.found == nil && e.absent == nil {
		return
	}
	here := map[string]bool{}
	for _, p := range e.found {
		here[p.Name] = p.Does(workload)
	}
	for _, s := range rival.Elsewhere[workload] {
		share := ""
		if s.OfLimit > 0 {
			share = fmt.Sprintf("%.3g of the limit there, ", s.OfLimit)
		}
		if !here[s.Program] {
			e.say("  %s: absent; measured elsewhere: %s%.3g MB/s (%s)\n", s.Program, share,
				s.MBPerS, s.Setting)
		}
		here[s.Program] = true
	}
	for _, p := range e.absent {
		if !here[p.Name] && p.Does(workload) {
			e.say("  %s: absent; not measured elsewhere either\n", p.Name)
		}
	}
}

// rivalPatience is the time without progress after which another program is ended.
const rivalPatience = 20 * time.Second

// rival runs another program with a part of the input.
func (e *env) rival(p rival.Program, workload string, in load.Input) (m measure, err error) {
	if in, err = e.input(in.Kind, in.Bytes/p.PartOf(workload)); err != nil {
		return m, err
	}
	dir := filepath.Join(e.dir, "rival")
	if err := os.RemoveAll(dir); err != nil {
		return m, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return m, err
	}
	j := rival.Job{Workload: workload, Dir: dir, Input: in.Path, Out: filepath.Join(dir, "out.log")}
	switch workload {
	case "w1":
		r, err := p.Run(j, rivalPatience, func(pid int) (int64, bool, error) {
			at := rival.ReadTo(pid, in.Path)
			return at, at >= in.Bytes, nil
		})
		return of(r, in), err
	case "w2":
		return rivalIntoFile(e, p, j, in)
	}
	return received(in, receiver.Behaviour{}, func(rec *receiver.Receiver) (proc.Run, error) {
		j.URL = rec.URL
		return p.Run(j, rivalPatience, func(int) (int64, bool, error) {
			s, err := rec.Stats()
			return s.Unique, s.Unique >= in.Records, err
		})
	})
}

// rivalIntoFile measures a program that writes a file. The work is done when the file has all
// records. Its size does not show that, because each program wraps records in its own way. So the
// records are counted. Counting takes CPU time from the program, so it begins only when the file is
// as large as the input.
func rivalIntoFile(e *env, p rival.Program, j rival.Job, in load.Input) (measure, error) {
	if err := e.warm(in); err != nil {
		return measure{}, err
	}
	marks := load.NewMarks(in.Records)
	var at, unique int64
	buf := make([]byte, 4<<20)
	r, err := p.Run(j, rivalPatience, func(int) (int64, bool, error) {
		if size := sizes(j.Written()); size < in.Bytes {
			return size, false, nil
		}
		f, err := os.Open(j.Written())
		if err != nil {
			return 0, false, err
		}
		defer f.Close()
		for {
			n, _ := f.ReadAt(buf, at)
			whole := bytes.LastIndexByte(buf[:n], '\n') + 1
			if whole == 0 {
				return at, unique >= in.Records, nil
			}
			unique += marks.Add(buf[:whole])
			at += int64(whole)
		}
	})
	m := of(r, in)
	m.take(marks)
	return m, err
}
