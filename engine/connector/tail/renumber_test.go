package tail_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/stream/streamtest"
	"github.com/penstock-io/penstock/vfs"
)

// mounted is a file system with a device number that changes at each mount.
type mounted struct {
	vfs.FS
	by uint64
}

func (m *mounted) OpenDir(path string) (vfs.Dir, error) {
	d, err := m.FS.OpenDir(path)
	if err != nil {
		return nil, err
	}
	return mountedDir{d, m.by}, nil
}

type mountedDir struct {
	vfs.Dir
	by uint64
}

func (d mountedDir) Stat(name string) (vfs.Info, error) {
	info, err := d.Dir.Stat(name)
	info.Dev += d.by
	return info, err
}

func (d mountedDir) Open(name string) (vfs.File, error) {
	f, err := d.Dir.Open(name)
	if err != nil {
		return nil, err
	}
	return mountedFile{f, d.by}, nil
}

type mountedFile struct {
	vfs.File
	by uint64
}

func (f mountedFile) Stat() (vfs.Info, error) {
	info, err := f.File.Stat()
	info.Dev += f.by
	return info, err
}

// TestNewDeviceNumber checks a file system that is remounted under another device number. No data
// is delivered twice, unread data is read, and rotations while nothing ran are followed.
func TestNewDeviceNumber(t *testing.T) {
	for routes := 1; routes <= 2; routes++ {
		dir, base := t.TempDir(), time.Now().Add(time.Hour)
		synctest.Test(t, func(t *testing.T) {
			disk := &mounted{FS: connectortest.FS()}
			p := newFixture(t, dir, outages[0].options)
			p.host = streamtest.NewQuiet(disk, nil, func(name string) bool { return name != "tail/notify" })
			defer p.kill()
			if routes == 2 {
				p.withSecond()
			}
			w := newWriter(t, dir, base)
			w.append("a.log", 30)
			w.append("b.log", 1)
			w.append("c.log", 20)
			for by := range uint64(3) {
				disk.by = 1000 * by
				p.start(false)
				p.pump(5 * time.Second)
				for m := p; m != nil; m = m.second {
					m.want(w.ledger...)
				}
				p.kill()
				w.append("a.log", 20)
				w.append("b.log", 1)
				w.rename("c.log", "c.log.1")
				w.append("c.log", 7)
				w.pack("c.log.1", "c.log.1.gz", 0)
				w.remove("c.log.1")
				w.rename("c.log.1.gz", "c.log."+strings.Repeat("1", int(by)+2)+".gz")
			}
			p.start(false)
			p.pump(2 * time.Minute)
			for m := p; m != nil; m = m.second {
				m.want(w.ledger...)
			}
		})
	}
}
