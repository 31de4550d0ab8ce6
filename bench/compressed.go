package main

import (
	"errors"
	"os"
	"os/exec"
	"time"

	"github.com/penstock-io/penstock/bench/load"
	"github.com/penstock-io/penstock/bench/proc"
)

// compressed are the workloads with compressed input files. The limit is a program that only
// decompresses. The inputs are large, because the time includes the start of the process, which
// would be most of the time for small inputs.
var compressed = []workload{
	compressedBy("w1_gzip", "gzip", "zcat", .85),
	compressedBy("w1_zstd", "zstd", "zstdcat", .85),
}

func compressedBy(name, program, cat string, ofLimit float64) workload {
	return workload{
		name: name, about: "spool_dir -> drop, raw, " + program + " at its default level",
		kind: load.Combined,
		size: quickOrFull{512 * mib, gib}, pairs: quickOrFull{3, 7},
		want:      wants{ofLimit: ofLimit, rssMiB: 96},
		limitName: cat, limitAbout: cat + " of the same file into nothing",
		absent: func() string { return missing(program, cat) },
		limit: func(e *env, in load.Input) (measure,
			error) {
			return decompressedBy(e, cat, program, in)
		},
		ours: func(e *env, in load.Input) (measure, error) {
			packed, err := e.packed(program, in)
			if err != nil {
				return measure{}, err
			}
			m, err := e.once(packed, toDrop)
			m.bytes = in.Bytes
			return m, err
		},
	}
}

// missing returns a message about the first program that is not on the PATH, or "".
func missing(programs ...string) string {
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			return p + " is not on the PATH"
		}
	}
	return ""
}

// packed returns a compressed copy of an input. It compresses an input only once.
func (e *env) packed(program string, in load.Input) (load.Input, error) {
	out := in
	out.Path = in.Path + "." + program
	if _, err := os.Stat(out.Path); err == nil {
		return out, nil
	}
	f, err := os.Create(out.Path)
	if err != nil {
		return out, err
	}
	cmd := exec.Command(program, "-q", "-c", in.Path)
	cmd.Stdout, cmd.Stderr = f, os.Stderr
	if err := errors.Join(cmd.Run(), f.Close()); err != nil {
		return out, err
	}
	old := time.Now().Add(-time.Hour)
	return out, os.Chtimes(out.Path, old, old)
}

// decompressedBy measures a program that only decompresses.
func decompressedBy(e *env, cat, program string, in load.Input) (measure, error) {
	packed, err := e.packed(program, in)
	if err != nil {
		return measure{}, err
	}
	r, err := proc.Do("sh", "-c", `exec "$0" "$1" > /dev/null`, cat, packed.Path)
	return of(r, in), err
}
