package checkpoint

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"

	"github.com/penstock-io/penstock/vfs/vfstest"
)

// promise holds the steps that a store must still have after a crash. held has the contents of the
// store after each step, and the other fields are indexes into held: after a kill the store must
// have at least the step saved, and after a power loss at least the step synced.
type promise struct {
	held   []string
	synced int // last step known to be durable
	saved  int // last step known to be written
	begun  int // last step begun
}

// run performs steps on a new or existing store, and records the progress after each step in p. It
// syncs the store at regular intervals: if the argument every is 3, after every third step. It ends
// at the first error.
func (p *promise) run(m *vfstest.Mem, list []step, every int) error {
	dir, err := m.MakeDir("/state", 0o700)
	if err != nil {
		return err
	}
	defer dir.Close()
	s, _, err := Open(dir, Options{Factor: 1, Slack: 300})
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Sync(); err != nil {
		return err
	}
	model := contents(s)
	for i := range list {
		list[i].onModel(model)
		p.held = append(p.held, model.String())
		p.begun++
		if err := list[i].on(s); err != nil {
			return err
		}
		p.saved = p.begun
		if i%every == every-1 {
			if err := s.Sync(); err != nil {
				return err
			}
			p.synced = p.saved
		}
	}
	return s.Close()
}

// kept checks a store after a crash. left is the file system after the crash. The store must have
// the contents that it had after some step, from step number least to the last step that was begun.
func (p *promise) kept(t *testing.T, what fmt.Stringer, left *vfstest.Mem, least int) {
	t.Helper()
	s, r, err := Open(stateDir(t, left), Options{})
	if err != nil {
		t.Fatalf("%v: %v", what, err)
	}
	got := contents(s).String()
	if r.Damage != "" || len(r.Aside) > 0 {
		t.Fatalf("%v: called damaged: %v", what, r)
	}
	if i := slices.Index(p.held[least:p.begun+1], got); i < 0 {
		t.Fatalf("%v: it holds\n%s\nwhich is not one of the states from step %d to %d", what, got,
			least, p.begun)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestCrashAfterEveryCall(t *testing.T) {
	crashes := 0
	for s := range uint64(6) {
		list := steps(rand.New(rand.NewPCG(seed, s)), 30)
		m := vfstest.New()
		p := &promise{held: []string{""}}
		for c := range vfstest.CrashesFrom(t, seed+s, m,
			func(m *vfstest.Mem) { must(t, p.run(m, list, 4)) }) {
			crashes++
			least := p.synced
			if c.Data == vfstest.DataAll {
				least = p.saved
			}
			p.kept(t, c, c.FS, least)
		}
	}
	if crashes < 1000 {
		t.Errorf("%d crashes, want at least 1000", crashes)
	}
}

// TestCrashWhileRecovering simulates a second crash, while Open reads the log that a first crash
// has left. The second crash must not lose any step that the first one could not lose.
func TestCrashWhileRecovering(t *testing.T) {
	list := steps(rand.New(rand.NewPCG(seed, 50)), 14)
	p := &promise{held: []string{""}}
	n := 0
	for c := range vfstest.CrashesFrom(t, seed, vfstest.New(),
		func(m *vfstest.Mem) { must(t, p.run(m, list, 5)) }) {
		if n++; n%3 != 0 {
			continue
		}
		least := p.synced
		if c.Data == vfstest.DataAll {
			least = p.saved
		}
		for again := range vfstest.CrashesFrom(t, seed+1, c.FS, func(m *vfstest.Mem) {
			s, _ := mustOpen(t, stateDir(t, m), Options{})
			must(t, s.Close())
		}) {
			p.kept(t, again, again.FS, least)
		}
	}
}

// TestFaultAtEveryCall makes the nth call to the file system fail, once or permanently, for all n.
// Afterwards the store must have at least the steps that it has reported as saved, and after a
// crash at least those that it has reported as synced.
func TestFaultAtEveryCall(t *testing.T) {
	list := steps(rand.New(rand.NewPCG(seed, 60)), 12)
	for _, lasting := range []bool{false, true} {
		for _, err := range []error{syscall.ENOSPC, syscall.EIO} {
			for n := 1; ; n++ {
				m := vfstest.New()
				m.Fail(vfstest.Fault{Nth: n, Lasting: lasting, Err: err, Short: 7})
				p := &promise{held: []string{""}}
				failed := p.run(m, list, 3)
				struck := m.Heal()
				if struck == 0 {
					break
				}
				what := name(fmt.Sprintf("fault %v (lasting %v) at call %d, which ended in %v", err,
					lasting, n, failed))
				for _, data := range []vfstest.Data{vfstest.DataNone, vfstest.DataPrefix,
					vfstest.DataTorn} {
					for _, names := range []vfstest.Names{vfstest.NamesNone, vfstest.NamesSome,
						vfstest.NamesAll} {
						p.kept(t, what, m.Crash(data, names, uint64(n)), p.synced)
					}
				}
				p.kept(t, what, m.Crash(vfstest.DataAll, vfstest.NamesAll, 1), p.saved)
			}
		}
	}
}

type name string

func (n name) String() string { return string(n) }
