//go:build unix

package cli

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/internal/checkpoint"
	"github.com/penstock-io/penstock/engine/internal/deadletter"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// commandOn runs a command. All files except the config are in m.
func commandOn(t *testing.T, m *vfstest.Mem, command string) (got outcome) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := realProgram()
		p.files = m
		p.assemble = func(c engine.Config, o engine.Options) (runner, error) {
			o.FS = m
			return engine.New(c, o)
		}
		got = p.try(t, strings.Fields(command)...)
	})
	return got
}

const faultsConfig = "state: /faults/state\npipelines: { p: { source: { spool_dir: { path: " +
	"/faults/in, finished: keep } }, processors: [%s], sink: { file: { path: /faults/out.log } } } }\n"

// withLetters returns a file system after a run that has delivered 2 records and dead-lettered 3.
// With the config fixed.yaml, the letters can be delivered.
func withLetters(t *testing.T) *vfstest.Mem {
	t.Helper()
	inFolder(t)
	writeFile(t, "broken.yaml", fmt.Sprintf(faultsConfig, "parse: { format: json }"))
	writeFile(t, "fixed.yaml", fmt.Sprintf(faultsConfig, ""))
	m := vfstest.New()
	dir, err := m.MakeDir("/faults/in", 0o700)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	f, err := dir.OpenFile("a.log", syscall.O_RDWR|syscall.O_CREAT, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write([]byte("{\"a\":1}\nbad 1\nbad 2\n{\"a\":2}\nbad 3\n")); err != nil {
		t.Fatal(err)
	}
	if got := commandOn(t, m, "run --once broken.yaml"); got.code != exitOK {
		t.Fatalf("run: %+v", got)
	}
	return killed(m)
}

// killed returns the file system after a kill of the process.
func killed(m *vfstest.Mem) *vfstest.Mem { return m.Crash(vfstest.DataAll, vfstest.NamesAll, 1) }

// progressIn returns the entries of the checkpoint in m, one a line, and the ids of the settled
// letters. After a power loss, the progress that is valid until the next boot does not count.
func progressIn(t *testing.T, m *vfstest.Mem, powerLoss bool) (entries string, letters []string) {
	t.Helper()
	dir, err := m.OpenDir("/faults/state")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	snap, report, err := checkpoint.Read(dir)
	if err != nil || report.Err() != nil {
		t.Fatalf("checkpoint: %v, %v", report, err)
	}
	all, settled := []string{fmt.Sprintf("format %d", snap.Version)}, make(map[string]bool)
	for _, r := range snap.Routes {
		_, boot := layer(r.Route)
		if powerLoss && boot != "" {
			continue
		}
		for _, mark := range r.Marks {
			all = append(all, fmt.Sprint(r.Route, mark.Part, mark.Watermark, mark.Above, mark.Finished))
			if deadletter.IsPartition(mark.Part.ID) && mark.Watermark.Num > 0 {
				settled[mark.Part.ID] = true
			}
		}
		all = append(all, fmt.Sprint(r.Route, r.Places))
	}
	slices.Sort(all)
	return strings.Join(all, "\n"), slices.Sorted(maps.Keys(settled))
}

func outputIn(t *testing.T, m *vfstest.Mem) string {
	t.Helper()
	dir, err := m.OpenDir("/faults")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	return vfstest.Content(t, dir, "out.log")
}

// eachFault runs a command once for each of its calls to the file system. In the nth run, the nth
// call fails: also a sync, and a write that has written a part of its data. eachFault passes the
// exit code and the file system to check: after a kill, and after power losses.
func eachFault(t *testing.T, base *vfstest.Mem, command string,
	check func(code int, m *vfstest.Mem, powerLoss bool)) {
	t.Helper()
	for _, fault := range []vfstest.Fault{{Err: syscall.ENOSPC, Short: 7},
		{Err: syscall.EIO, Lasting: true, Short: 7}} {
		for fault.Nth = 1; ; fault.Nth++ {
			m := killed(base)
			m.Fail(fault)
			got := commandOn(t, m, command)
			if m.Heal() == 0 {
				break
			}
			before := t.Failed()
			check(got.code, killed(m), false)
			for _, names := range []vfstest.Names{vfstest.NamesNone, vfstest.NamesSome} {
				for _, data := range []vfstest.Data{vfstest.DataNone, vfstest.DataTorn} {
					check(got.code, m.Crash(data, names, uint64(fault.Nth)), true)
				}
			}
			if t.Failed() && !before {
				calls := m.Calls()
				i := slices.IndexFunc(calls, func(c vfstest.Call) bool { return errors.Is(c.Err, fault.Err) })
				t.Logf("%v at call %d: %+v\n%v", fault.Err, fault.Nth, got, calls[max(0, i):])
			}
		}
	}
}

// TestChangeFaults checks that a command changes the checkpoint completely or not at all, whatever
// fails, and that it reports success only after the change is durable.
func TestChangeFaults(t *testing.T) {
	base := withLetters(t)
	for _, command := range []string{
		"checkpoint reset fixed.yaml p/main",
		"checkpoint set fixed.yaml --route p/main --partition a.log --watermark 8",
		"checkpoint convert fixed.yaml --format 2",
		"audit broken.yaml",
	} {
		t.Run(command, func(t *testing.T) {
			done := killed(base)
			if got := commandOn(t, done, command); got.code != exitOK {
				t.Fatalf("without a fault: %+v", got)
			}
			eachFault(t, base, command, func(code int, m *vfstest.Mem, powerLoss bool) {
				before, _ := progressIn(t, base, powerLoss)
				after, _ := progressIn(t, done, powerLoss)
				now, _ := progressIn(t, m, powerLoss)
				if now != after && (now != before || code == exitOK) {
					t.Errorf("exit code %d, power loss %t: the checkpoint has\n%s\nbefore:\n%s\n"+
						"without a fault:\n%s", code, powerLoss, now, before, after)
				}
				if now == before && now != after && commandOn(t, m, command).code != exitOK {
					t.Error("the command cannot be repeated")
				}
			})
		})
	}
}

// TestSettleFaults checks that each letter counts as settled or not, whatever fails. A replayed
// letter must be in the output. After the command was repeated, each record is there once.
func TestSettleFaults(t *testing.T) {
	base := withLetters(t)
	for _, command := range []string{"dead discard --all fixed.yaml", "dead replay fixed.yaml"} {
		t.Run(command, func(t *testing.T) {
			want := []string{`{"message":"bad 1"}`, `{"message":"bad 2"}`, `{"message":"bad 3"}`}
			replays := strings.Contains(command, "replay")
			checkOutput := func(code int, m *vfstest.Mem, powerLoss bool) {
				_, settled := progressIn(t, m, powerLoss)
				if code == exitOK && len(settled) != len(want) {
					t.Errorf("success, and %d letters are settled", len(settled))
				}
				if !replays {
					return
				}
				output, n := outputIn(t, m), 0
				for _, text := range want {
					n += min(1, strings.Count(output, text+"\n"))
				}
				if n < len(settled) {
					t.Errorf("%d letters are settled, and the output has %d: %q", len(settled), n,
						output)
				}
			}
			eachFault(t, base, command, func(code int, m *vfstest.Mem, powerLoss bool) {
				checkOutput(code, m, powerLoss)
				if powerLoss { // the upper layer is not valid after a boot, which m does not have
					return
				}
				if got := commandOn(t, m, command); got.code != exitOK {
					t.Errorf("the command cannot be repeated: %+v", got)
				}
				checkOutput(exitOK, m, false)
				for _, text := range want {
					if n := strings.Count(outputIn(t, m), text+"\n"); replays && n != 1 {
						t.Errorf("the output has %q %d times", text, n)
					}
				}
			})
		})
	}
}
