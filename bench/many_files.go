package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/penstock-io/penstock/bench/load"
	"github.com/penstock-io/penstock/bench/proc"
)

// smallFilesCount is the number of files in the workload "files".
var smallFilesCount = quickOrFull{50_000, 100_000}

// smallFiles is the workload of many small files. Opening and remembering such a file costs more
// than reading it.
var smallFiles = []workload{{
	name: "files", about: "spool_dir of 50,000 files of 10 lines (100,000 in the full run) -> drop",
	kind: load.Combined,
	size: smallFilesCount, pairs: quickOrFull{1, 3}, want: wants{ofLimit: .33, rssMiB: 200},
	limitName: "find_cat", limitAbout: "find DIR -type f -exec cat {} +",
	input:  folderOfSmallFiles,
	absent: func() string { return missing("find", "cat") },
	limit: func(_ *env, in load.Input) (measure, error) {
		r, err := proc.Do("sh", "-c", `exec find "$0" -type f -exec cat {} + > /dev/null`, in.Path)
		return of(r, in), err
	},
	ours: func(e *env, in load.Input) (measure, error) {
		folder := in.Path
		in.Path = ""
		config := fmt.Sprintf(`state: ./state
pipelines:
  bench:
    source: { spool_dir: { path: %q, finished: keep } }
    sink: { drop: {} }
`, folder)
		return e.once(in, config)
	},
}}

// folderOfSmallFiles creates the input of the workload "files" once. Each file has 10 lines and is
// an hour old.
func folderOfSmallFiles(e *env) (load.Input, error) {
	const linesEach = 10
	n := smallFilesCount.of(e.full)
	in := load.Input{Path: filepath.Join(e.dir, fmt.Sprintf("small-files-%d", n)),
		Kind: load.Combined, Records: n * linesEach}
	if known, ok := e.inputs[in.Path]; ok {
		return known, nil
	}
	b, err := e.block(load.Combined)
	if err == nil {
		err = os.Mkdir(in.Path, 0o755)
	}
	if err != nil {
		return in, err
	}
	old := time.Now().Add(-time.Hour)
	for i := range n {
		at := int(i) * linesEach % (b.Lines() - linesEach)
		text := b.Number(at, at+linesEach, i*linesEach, time.Time{})
		in.Bytes += int64(len(text))
		path := filepath.Join(in.Path, fmt.Sprintf("%06d.log", i))
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return in, err
		}
		if err := os.Chtimes(path, old, old); err != nil {
			return in, err
		}
	}
	e.inputs[in.Path] = in
	return in, nil
}
