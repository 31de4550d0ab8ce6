//go:build linux

package faults

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// limitCases limit the program's file descriptors, the size of its files, and the space on its
// disks.
func limitCases() (table []faultCase) {
	for i, descriptors := range []int{8, 10, 12, 14, 16, 20, 24, 32, 48} {
		for _, from := range []source{spoolSource, tailSource} {
			sink := []string{"file", "http"}[i%2]
			table = append(table, descriptorCase(descriptors, from, sink))
		}
	}
	for _, kilobytes := range []int{0, 1, 8, 40} {
		for _, sink := range []string{"file", "sqlite", "dead letters", "http"} {
			table = append(table, fileSizeCase(kilobytes, sink))
		}
	}
	for _, kilobytes := range []int{4, 16, 48} {
		for _, folder := range []string{"state", "out", "sqlite", "dead"} {
			table = append(table, fullDiskCase(kilobytes, folder))
		}
	}
	return table
}

// manyFiles spreads the records over a hundred files.
func manyFiles(r *rig, lines []string) {
	n := len(lines) / 100
	for i := range 100 {
		r.write(fmt.Sprintf("in/%03d.log", i), strings.Join(lines[i*n:(i+1)*n], "\n")+"\n")
	}
}

func descriptorCase(n int, from source, sink string) faultCase {
	from.fill = manyFiles
	d := delivery{
		source: from, limits: fmt.Sprintf("ulimit -n %d", n), exits: []int{0, 1, 2},
		heal: func(*rig) {},
		sink: `file: { path: ./out.log, format: raw }`, stored: storedIn("out.log"),
		exactlyOnce: true,
	}
	if sink == "http" {
		d.sink, d.stored, d.exactlyOnce = `http: { endpoints: ["{url}"], body: raw }`, nil, false
		d.receiver = func(r *rig, when schedule) *receiver { return r.receive(accepts, when, false) }
		d.when = firstOne
	}
	return faultCase{
		name:  fmt.Sprintf("descriptors/%d/%s/%s", n, from.name, sink),
		holds: "exit code 0 means that everything arrived; the next run delivers the rest",
		run:   d.run,
	}
}

// toSink returns a delivery whose output, database or dead letters are in a given folder.
func toSink(sink, folder string) delivery {
	switch sink {
	case "sqlite":
		return delivery{
			sink:   `sqlite: { path: ./` + folder + `/out.db, table: lines }`,
			stored: storedRows(folder+"/out.db", "SELECT message FROM lines"), exactlyOnce: true,
		}
	case "dead letters":
		return delivery{
			processors: `{ parse: { format: regex, pattern: '^(?P<message>r\d{4}[0-8]\d:.*)$' } }`,
			sink:       `file: { path: ./out.log, format: raw }`, stored: storedIn("out.log"),
			exactlyOnce: true,
			options:     "dead_letters: { dir: ./" + folder + " }", dead: 200,
		}
	case "http":
		d := toReceiver(accepts)
		d.when = firstOne
		return d
	}
	return delivery{
		sink:        `file: { path: ./` + folder + `/out.log, format: raw }`,
		stored:      storedIn(folder + "/out.log"),
		exactlyOnce: true,
	}
}

// fileSizeCase bounds the size of every file that the program writes, its state included.
func fileSizeCase(kilobytes int, sink string) faultCase {
	d := toSink(sink, "out")
	d.limits = fmt.Sprintf("ulimit -f %d", kilobytes)
	d.exits, d.mute = []int{0, 1, 2, -int(syscall.SIGXFSZ)}, kilobytes < 40
	d.heal = func(*rig) {}
	d.anyRedelivery = true
	return faultCase{
		name:  fmt.Sprintf("file-size/%d KiB/%s", kilobytes, sink),
		holds: "exit code 0 means that everything arrived; the next run delivers the rest",
		run:   d.run,
	}
}

// fullDiskCase puts a folder on a disk that is full after some kilobytes. If it cannot mount such a
// disk, it limits the size of files instead.
func fullDiskCase(kilobytes int, folder string) faultCase {
	sink := map[string]string{"state": "http", "out": "file", "sqlite": "sqlite",
		"dead": "dead letters"}[folder]
	if folder == "sqlite" {
		folder = "out"
	}
	d := toSink(sink, folder)
	options := func(size int) string { return fmt.Sprintf("size=%dk", size) }
	d.prepare = func(r *rig) {
		r.check(os.MkdirAll(r.path(folder), 0o755))
		if err := syscall.Mount("none", r.path(folder), "tmpfs", 0, options(kilobytes)); err != nil {
			r.t.Logf("no tmpfs (%v): a limit of the file size takes its place", err)
			return
		}
		r.cleanup(func() { r.errorUnless(exec.Command("umount", "-l", r.path(folder)).Run()) })
	}
	if os.Getuid() != 0 {
		d.limits = fmt.Sprintf("ulimit -f %d", kilobytes)
	}
	d.heal = func(r *rig) {
		if os.Getuid() == 0 {
			r.check(syscall.Mount("none", r.path(folder), "tmpfs", syscall.MS_REMOUNT,
				options(64<<10)))
		}
	}
	d.exits = []int{0, 1}
	d.anyRedelivery = true
	return faultCase{
		name:  fmt.Sprintf("full-disk/%d KiB/%s of %s", kilobytes, folder, sink),
		holds: "exit code 0 means that everything arrived; the next run delivers the rest",
		run:   d.run,
	}
}

// stderrCases block, close and fill the program's outputs.
func stderrCases() (table []faultCase) {
	for _, x := range []struct {
		name   string
		limits string
		// stdout and stderr are the outputs of the program. "" means that the test reads the
		// output, "stuck" means a full pipe, and "gone" means a pipe without a reader. Any other
		// text is the path of a device.
		stdout, stderr string
		exits          []int
	}{
		{name: "stderr stuck", stderr: "stuck", exits: []int{0}},
		{name: "stderr gone", stderr: "gone", exits: []int{0}},
		{name: "stderr full", stderr: "/dev/full", exits: []int{0}},
		{name: "stderr closed", limits: "exec 2>&-", exits: []int{0}},
		{name: "stdout closed", limits: "exec 1>&-", exits: []int{0, 1}},
		{name: "stdin closed", limits: "exec 0<&-", exits: []int{0}},
		{name: "all closed", limits: "exec 0<&- 1>&- 2>&-", exits: []int{0, 1}},
		{name: "stdout full", stdout: "/dev/full", exits: []int{0, 1}},
		{name: "stdout gone", stdout: "gone", exits: []int{0, 1, -int(syscall.SIGPIPE)}},
		{name: "both full", stdout: "/dev/full", stderr: "/dev/full", exits: []int{0, 1}},
	} {
		for _, format := range []string{"text", "json"} {
			for _, sink := range []string{"http", "file"} {
				d := toSink(sink, "out")
				if sink == "http" { // each third request is logged as a warning
					d = toReceiver(reply{name: "500", discard: true, answer: answers("500 No")})
					d.when = everyThird
				}
				d.limits, d.exits, d.anyRedelivery, d.mute = x.limits, x.exits, true, x.stdout !=
					"" || x.limits != ""
				d.flags = []string{"--log-level", "debug", "--log-format", format}
				d.heal = func(*rig) {}
				outer := d
				run := func(r *rig) {
					d := outer
					d.stdout, d.stderr = r.output(x.stdout), r.output(x.stderr)
					d.during = func(r *rig, p *process) { r.stopIfStuck(p) }
					d.run(r)
				}
				table = append(table, faultCase{
					name: fmt.Sprintf("outputs/%s/%s/%s", x.name, format, sink), run: run,
					holds: "output that cannot be written does not hold up delivery",
				})
			}
		}
	}
	return table
}

// output opens a standard output of the given kind.
func (r *rig) output(kind string) *os.File {
	switch kind {
	case "":
		return nil
	case "stuck", "gone":
		in, out, err := os.Pipe()
		r.check(err)
		r.cleanup(func() { out.Close() })
		if kind == "gone" {
			r.check(in.Close())
			return out
		}
		r.cleanup(func() { in.Close() })
		r.check(out.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)))
		_, _ = out.Write(make([]byte, 1<<20)) // until the pipe is full
		return out
	}
	f, err := os.OpenFile(kind, os.O_WRONLY, 0)
	r.check(err)
	r.cleanup(func() { f.Close() })
	return f
}

// stopIfStuck gives a run 20 seconds. If it is still running, stopIfStuck sends it two signals, the
// second of which must always end it.
func (r *rig) stopIfStuck(p *process) {
	if until(20*time.Second, func() bool { return !p.running() }) {
		return
	}
	r.errorf("the run did not end within 20 s")
	p.signal(syscall.SIGTERM)
	pause(500 * time.Millisecond)
	p.signal(syscall.SIGTERM)
	if !until(slack, func() bool { return !p.running() }) {
		r.errorf("the second SIGTERM did not end it")
		p.signal(syscall.SIGKILL)
	}
}

func (r *rig) errorUnless(err error) {
	if err != nil {
		r.errorf("the harness failed: %v", err)
	}
}
