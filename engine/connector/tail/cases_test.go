package tail_test

import (
	"strings"
	"time"

	"github.com/penstock-io/penstock/engine/connector/tail"
)

// do returns its arguments as a list of steps.
func do(steps ...func(w *writer)) []func(w *writer) { return steps }

func add(name string, n int) func(*writer)   { return func(w *writer) { w.append(name, n) } }
func more(as string, n int) func(*writer)    { return func(w *writer) { w.more(as, n) } }
func mv(from, to string) func(*writer)       { return func(w *writer) { w.rename(from, to) } }
func cp(from, to string) func(*writer)       { return func(w *writer) { w.copy(from, to) } }
func cpOver(from, to string) func(*writer)   { return func(w *writer) { w.copyOver(from, to) } }
func rm(name string) func(*writer)           { return func(w *writer) { w.remove(name) } }
func cut(name string) func(*writer)          { return func(w *writer) { w.truncate(name) } }
func renew(name string, n int) func(*writer) { return func(w *writer) { w.rewrite(name, n) } }
func hold(as, name string) func(*writer)     { return func(w *writer) { w.hold(as, name) } }
func release(as string) func(*writer)        { return func(w *writer) { w.release(as) } }
func both(steps ...func(*writer)) func(*writer) {
	return func(w *writer) {
		for _, s := range steps {
			s(w)
		}
	}
}

// plainCases returns the cases of files that only grow.
func plainCases() []rotation {
	return []rotation{
		{name: "one file", steps: do(add("a.log", 3), add("a.log", 1), add("a.log", 50))},
		{name: "an empty file that grows", steps: do(func(w *writer) {
			w.text("a.log", "")
		}, add("a.log", 1), add("a.log", 2))},
		{name: "two files", steps: do(add("a.log", 3), add("b.log", 3), add("a.log", 2), add("b.log", 2))},
		{name: "a file that appears late", steps: do(add("a.log", 2), add("a.log", 2), add("late.log", 4))},
		{name: "a folder that appears late", glob: "sub/*.log", steps: do(
			func(w *writer) { w.mkdir("sub") }, add("sub/a.log", 3), add("sub/a.log", 2))},
		{name: "a folder that is created again", glob: "sub/*.log", steps: do(
			both(func(w *writer) { w.mkdir("sub") }, add("sub/a.log", 3)),
			both(mv("sub", "old"), func(w *writer) {
				w.mkdir("sub")
			}, add("sub/a.log", 3)), add("sub/a.log", 2)), skip: neverSeen},
		{name: "folders by **", glob: "**/*.log", steps: do(
			both(func(w *writer) { w.mkdir("x/y") }, add("x/y/a.log", 2), add("top.log", 2)), add("x/y/a.log", 2))},
		{name: "a line in three pieces", steps: do(
			func(w *writer) { w.text("a.log", "a li") }, func(w *writer) { w.text("a.log", "ne in pie") },
			func(w *writer) { w.text("a.log", "ces\n", "a line in pieces") }, add("a.log", 1))},
		{name: "CRLF and an empty line", steps: do(
			func(w *writer) {
				w.text("a.log", "one\r\n\r", "one")
			}, func(w *writer) { w.text("a.log", "\ntwo\r\n", "", "two") })},
		{name: "a batch and more at once", wide: 100, steps: do(add("a.log", 200), add("a.log", 200))},
		{name: "many files at once", steps: do(func(w *writer) {
			for i := range 30 {
				w.append(strings.Repeat("f", i+1)+".log", 2)
			}
		}, func(w *writer) {
			for i := range 30 {
				w.append(strings.Repeat("f", i+1)+".log", 1)
			}
		})},
		{name: "a record longer than max_record", change: func(o *tail.Options) { o.MaxRecord = 64 }, steps: do(
			add("a.log", 1), func(w *writer) {
				w.text("a.log", strings.Repeat("x", 100)+"\n", strings.Repeat("x", 64), strings.Repeat("x", 36))
			}, add("a.log", 1))},
	}
}

// renameCases returns the cases of rotation by rename and a new file under the old name.
func renameCases() []rotation {
	next := both(mv("a.log", "a.log.1"), add("a.log", 3))
	inner := []rotation{
		{name: "renamed", steps: do(add("a.log", 3), mv("a.log", "b.log"), add("b.log", 2))},
		{name: "rename and create",
			steps: do(add("a.log", 3), mv("a.log", "a.log.1"), add("a.log", 3), add("a.log", 1))},
		{name: "rename and create at once", steps: do(add("a.log", 3), next, add("a.log", 1))},
		{name: "unread lines, renamed at once",
			steps: do(add("a.log", 1), both(add("a.log", 3), next), add("a.log", 1))},
		{name: "the writer goes on in the renamed file", steps: do(
			both(hold("d", "a.log"), more("d", 3)), both(mv("a.log", "a.log.1"), more("d", 2)),
			more("d", 2), both(release("d"), add("a.log", 3)))},
		{name: "a new file while the old one is written", steps: do(
			both(hold("d", "a.log"), more("d", 3)), next, more("d", 4), both(release("d"), add("a.log", 1)))},
		{name: "twice in a row",
			steps: do(add("a.log", 3), next, both(mv("a.log.1", "a.log.2"), next), add("a.log", 1))},
		{name: "twice between two looks",
			steps: do(add("a.log", 3), both(next, mv("a.log.1", "a.log.2"), next), add("a.log", 1))},
		{name: "a chain of five", steps: do(add("a.log", 1), func(w *writer) {
			for i := range 5 {
				for k := i; k > 0; k-- {
					w.rename("a.log."+string(rune('0'+k)), "a.log."+string(rune('0'+k+1)))
				}
				w.rename("a.log", "a.log.1")
				w.append("a.log", 2)
			}
		}, add("a.log", 1))},
		{name: "two files exchange their names", steps: do(
			both(add("a.log", 3), add("b.log", 4)), both(mv("a.log", "x"), mv("b.log", "a.log"), mv("x", "b.log")),
			both(add("a.log", 1), add("b.log", 2)))},
		{name: "renamed and back",
			steps: do(add("a.log", 3), mv("a.log", "b.log"), mv("b.log", "a.log"), add("a.log", 2))},
		{name: "a partial line is renamed and ended", steps: do(
			both(hold("d", "a.log"), more("d", 2), func(w *writer) { w.text("a.log", "half") }), mv("a.log", "a.log.1"),
			both(func(w *writer) { w.text("a.log.1", " a line\n", "half a line") }, release("d"), add("a.log", 1)))},
		{name: "into a folder below", glob: "**/*.log", steps: do(
			both(func(w *writer) { w.mkdir("old") }, add("a.log", 3)), mv("a.log", "old/a.log"),
			both(add("old/a.log", 1), add("a.log", 2)))},
	}
	for i := range inner { // the same with the rotated names out of the glob
		c := inner[i]
		if c.glob != "" || strings.HasPrefix(c.name, "twice") || c.name == "a chain of five" ||
			c.name == "two files exchange their names" {
			continue
		}
		c.name, c.glob, c.skip = c.name+", out of the glob", "a.log", neverSeen
		inner = append(inner, c)
	}
	return inner
}

// copyCases returns the cases of files that are copied and truncated. Nothing is written between
// the copy and the truncation, because such lines would be lost.
func copyCases() []rotation {
	turn := both(cp("a.log", "a.log.1"), cut("a.log"))
	inner := []rotation{
		{name: "copytruncate", steps: do(add("a.log", 3), turn, add("a.log", 2))},
		{name: "copytruncate, unread lines", steps: do(add("a.log", 3), both(add("a.log", 4), turn), add("a.log", 2))},
		{name: "copytruncate, a while between",
			steps: do(add("a.log", 3), cp("a.log", "a.log.1"), cut("a.log"), add("a.log", 2))},
		{name: "copytruncate and regrown at once",
			steps: do(add("a.log", 3), both(turn, add("a.log", 2)), add("a.log", 2))},
		{name: "regrown past the old offset", steps: do(add("a.log", 3), both(turn, add("a.log", 9)), add("a.log", 2))},
		{name: "regrown to the old length", steps: do(add("a.log", 3), both(turn, add("a.log", 3)), add("a.log", 1))},
		{name: "copytruncate of much", wide: 60, steps: do(
			add("a.log", 90), both(add("a.log", 50), turn, add("a.log", 70)), add("a.log", 1))},
		{name: "copytruncate twice", steps: do(
			add("a.log", 3), both(turn, add("a.log", 2)),
			both(mv("a.log.1", "a.log.2"), turn, add("a.log", 4)), add("a.log", 1))},
		{name: "lines are added to the copy", steps: do(add("a.log", 3), turn, add("a.log", 2), add("a.log.1", 2))},
		{name: "moved to another file system", steps: do(
			add("a.log", 3), both(cpOver("a.log", "a.log.1"), rm("a.log")), add("a.log", 2))},
		{name: "copied by date, without its extension's place", glob: "a*.log", steps: do(
			add("a.log", 3), both(cp("a.log", "a-20261121.log"), cut("a.log")), add("a.log", 2))},
	}
	for i := range inner {
		c := inner[i]
		if c.glob != "" || c.name == "lines are added to the copy" || c.name == "copytruncate twice" {
			continue
		}
		c.name, c.glob, c.skip = c.name+", out of the glob", "a.log", neverSeen
		inner = append(inner, c)
	}
	return append(inner,
		rotation{name: "truncated and rewritten", steps: do(
			add("a.log", 3), both(cut("a.log"), add("a.log", 5)), add("a.log", 1)), skip: neverSeen},
		rotation{name: "truncated", steps: do(add("a.log", 3), cut("a.log"), add("a.log", 1)), skip: neverSeen},
		rotation{name: "truncated again and again", steps: do(
			add("a.log", 5), renew("a.log", 3), renew("a.log", 3), renew("a.log", 9),
			add("a.log", 1)), skip: unreadRewrites},
		rotation{name: "rewritten with an equal head", steps: do(
			func(w *writer) { w.text("a.log", head+"\none\n", head, "one") },
			func(w *writer) { w.truncate("a.log"); w.text("a.log", head+"\ntwo\nthree\n", head, "two", "three") },
			add("a.log", 1)), skip: neverSeen},
	)
}

// neverSeen reports whether to skip a schedule of kills, because no process notices a file before
// the file leaves the glob. Either no process runs until then, or the process is killed before it
// saves for the first time.
func neverSeen(s schedule) bool {
	return s.at == 0 && (s.kind == "down from" || s.kind == "unsaved after")
}

// head is longer than the hashed prefix of an id.
var head = strings.Repeat("a head that many files have in common ", 40)

// unreadRewrites skips schedules under which a rewrite destroys unread lines.
func unreadRewrites(s schedule) bool {
	return s.kind == "down from" || s.kind == "down during" || s.kind == "midway after" ||
		s.kind == "unsaved after" || s.kind == "before"
}

// goneCases returns the cases of deleted files.
func goneCases() []rotation {
	return []rotation{
		{name: "deleted after it was read",
			steps: do(add("a.log", 3), rm("a.log"), add("b.log", 1)), skip: unsavedGone},
		{name: "deleted and recreated",
			steps: do(add("a.log", 3), both(rm("a.log"), add("a.log", 4)), add("a.log", 1)), skip: unsavedGone},
		{name: "deleted while open, written on", steps: do(
			both(hold("d", "a.log"), more("d", 3)), both(rm("a.log"), more("d", 3)), more("d", 2),
			release("d")), skip: whileGone},
		{name: "deleted while open, and created again", steps: do(
			both(hold("d", "a.log"), more("d", 3)), both(rm("a.log"), add("a.log", 2)),
			more("d", 2), release("d")), skip: whileGone},
		{name: "the oldest of a chain is deleted", steps: do(
			both(add("a.log.2", 2), add("a.log.1", 2), add("a.log", 2)),
			both(rm("a.log.2"), mv("a.log.1", "a.log.2"), mv("a.log", "a.log.1"), add("a.log", 2)),
			add("a.log", 1)), skip: unsavedGone},
		{name: "a partial line at the end of a deleted file", waits: true, steps: do(
			both(add("a.log", 1), hold("d", "a.log"), func(w *writer) {
				w.text("a.log", "no end", "no end")
			}), rm("a.log"), release("d")),
			skip: whileGone},
		{name: "the folder is deleted", glob: "sub/*.log", steps: do(
			both(func(w *writer) { w.mkdir("sub") }, add("sub/a.log", 3)), both(rm("sub/a.log"), rm("sub")),
			both(func(w *writer) { w.mkdir("sub") }, add("sub/a.log", 2))), skip: unsavedGone},
	}
}

// unsavedGone reports whether to skip a schedule of kills. It skips schedules in which lines are
// deleted before a process has read them and saved its progress.
func unsavedGone(s schedule) bool {
	return s.kind != "never" && s.kind != "read, then before" || s.kind == "read, then before" && s.at == 0
}

// whileGone reports whether to skip a schedule of kills. It skips schedules in which the process is
// down or killed while the file is deleted, because then only open handles give access to the
// file's data.
func whileGone(s schedule) bool {
	return s.kind != "never" &&
		(s.at > 0 || s.kind != "before" && s.kind != "down during" && s.kind != "read, then before")
}

// identityCases are the cases about the identity of files.
func identityCases() []rotation {
	same := func(name string) func(w *writer) { return func(w *writer) { w.text(name, "equal\n", "equal") } }
	quick := func(o *tail.Options) { o.CopyWait = time.Second }
	return []rotation{
		{name: "equal files of unrelated names",
			steps: do(both(same("x.log"), same("y.log")), same("z.log"), add("y.log", 1))},
		{name: "equal files of related names", change: quick,
			steps: do(same("a.log"), same("a.log.1"), same("a.log.2"), add("a.log", 1))},
		{name: "equal heads, longer than the hash", steps: do(
			func(w *writer) {
				w.text("x.log", head+"\nx\n", head, "x")
			}, func(w *writer) { w.text("y.log", head+"\ny\n", head, "y") },
			both(add("x.log", 1), add("y.log", 1)))},
		{name: "one byte", steps: do(func(w *writer) {
			w.text("a.log", "\n", "")
		}, func(w *writer) { w.text("a.log", "\n", "") })},
		{name: "a hard link", steps: do(add("a.log", 2), func(w *writer) {
			if err := osLink(w.path("a.log"), w.path("b.log")); err != nil {
				w.t.Fatal(err)
			}
		}, add("b.log", 2), rm("a.log"), add("b.log", 1))},
		{name: "replaced by an equal file under its name", waits: true, steps: do(
			func(w *writer) { w.text("a.log", "status: ok\n", "status: ok") },
			func(w *writer) {
				w.text("tmp", "status: ok\n", "status: ok")
				w.rename("tmp", "a.log")
			}, add("a.log", 1)), skip: unsavedGone},
		{name: "replaced by another file under its name", steps: do(
			add("a.log", 3), both(add("tmp", 3), mv("tmp", "a.log")), add("a.log", 1)), skip: unsavedGone},
		{name: "restored from a backup that kept its time", steps: do(
			both(add("a.log", 3), cpOver("a.log", "backup")),
			both(rm("a.log"), cpOver("backup", "a.log")), add("a.log", 2)),
			// the process first sees the file after a write, which has replaced the preserved time
			skip: func(s schedule) bool { return s.kind == "down from" || s.kind == "unsaved after" }},
		{name: "restored from a backup, its time set later", steps: do(
			both(add("a.log", 3), cp("a.log", "backup")), both(rm("a.log"), cp("backup", "a.log")), func(w *writer) {
				w.age("a.log")
			},
			add("a.log", 2)), skip: func(s schedule) bool {
			return s.kind == "down from" || s.kind == "unsaved after"
		}},
		{name: "edited: a new file of the old lines and one more", waits: true,
			steps: do(add("a.log", 2), func(w *writer) {
				// an editor rewrites the whole file, so every line is new
				for _, line := range w.ledger[:2] {
					w.text("tmp", line+"\n", line)
				}
				w.append("tmp", 1)
				w.rename("tmp", "a.log")
			}), skip: unsavedGone},
		{name: "an inode that is used again", steps: do(
			add("a.log", 2), func(w *writer) {
				for range 20 { // file systems often reuse the inode that was freed last
					w.remove("a.log")
					w.append("a.log", 2)
					w.disown(2)
				}
				w.remove("a.log")
				w.append("a.log", 3)
			}, add("a.log", 1)), skip: unsavedGone},
		{name: "emptied and left",
			steps: do(add("a.log", 2), cut("a.log"), func(*writer) {}, add("a.log", 2)), skip: neverSeen},
	}
}

// harnessCases returns the file cases of vector-test-harness, made stricter. If a case copies a
// file, the glob matches the copy, too. In file_rotate_truncate, the file grows past the old offset
// before the source checks it again. Every line is counted, not only the last one.
func harnessCases() []rotation {
	text := func(name, line string) func(w *writer) { return func(w *writer) { w.text(name, line+"\n", line) } }
	return []rotation{
		{name: "file_rotate_create", glob: "f*", steps: do(
			text("f", "First line"), both(mv("f", "f0"), text("f", "New file line")), text("f0", "Last line"))},
		{name: "file_rotate_truncate", glob: "f*", steps: do(
			text("f", "First line"), both(cp("f", "f0"), cut("f"), text("f", "New file line")),
			text("f0", "Last line"))},
		{name: "file_truncate", glob: "f*", wide: 200, steps: do(
			add("f", 400), both(cut("f"), text("f", "Hello world"))), skip: unreadRewrites},
		{name: "wrapped_json", glob: "f*", steps: do(text("f", `{"log":"{\"message\":\"Hello world\"}"}`))},
		{name: "docker_partial_events_merging", glob: "f*", steps: do(
			text("f", `{"log":"`+strings.Repeat("p", 20_000)+`\n"}`), text("f", `{"log":"next\n"}`))},
		{name: "sighup: a new process of another config", glob: "f*",
			steps: do(text("f", "line 1"), text("f", "line 2"))},
		{name: "disk_buffer_persistence: a restart with lines waiting", glob: "f*",
			steps: do(text("f", "line 0"), add("f", 10))},
	}
}
