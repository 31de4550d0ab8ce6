package follow

// born identifies a file on its file system, independent of the device number.
type born struct {
	ino   uint64
	birth stamp
}

// renumber recognises files of earlier runs on a file system that has another device number now: it
// was remounted, the machine was restarted, or the whole file system was copied. A stored id is
// moved to a listed file of the same inode and birth time if no listed file is on the old device.
// The head and the fingerprint are compared later, as for any other file. Files without a birth
// time are skipped: inode numbers alone are weak evidence.
func (c *Catalogue) renumber() {
	devices := make(map[uint64]bool)
	files := make(map[born]*file)
	for key, f := range c.table.byKey {
		devices[key.Dev] = true
		if f.info.Birth.known() && f.entry == nil {
			files[born{key.Ino, f.info.Birth}] = f
		}
	}
	c.dormant.table.each(func(d *dormantFile) bool {
		devices[d.key.Dev] = true
		return true
	})
	n := 0
	for _, e := range c.ids.withoutFile() {
		id := e.id
		if devices[id.Dev] {
			continue
		}
		if f := files[born{id.Ino, stamp(id.Birth)}]; f != nil {
			c.ids.moveDevice(e, f.info.Dev)
			n++
		}
	}
	if n > 0 {
		c.log.Info("a file system has another device number; its files are recognised by inode "+
			"and birth time", "files", n)
	}
}
