package table

import (
	"fmt"
	"testing"

	"github.com/penstock-io/penstock/vfs"
)

// TestJournalVersions checks that journals of versions 1 and 2 are read, and one with an incomplete
// last entry. Version 1 has no digests of rows, so they are unknown (zero).
func TestJournalVersions(t *testing.T) {
	keys := func(kind byte, keys ...string) []byte {
		var body []byte
		for _, k := range keys {
			body = append(append(body, byte(len(k))), k...)
		}
		return appendEntry(nil, kind, body)
	}
	first := append([]byte(journalMagic1), appendEntry(nil, entryPartition, []byte("t"))...)
	first = append(first, keys(entryKeys, "a", "b", "c")...)
	second := append([]byte(journalMagic), appendEntry(nil, entryPartition, []byte("t"))...)
	second = appendRows(second, entryRows, []seenRow{{"a", rowDigest{1, 0xFFFF}},
		{"b", rowDigest{2}}, {"c", rowDigest{}}})
	second = appendRows(second, entryAbsent, []seenRow{{key: "b"}})
	second = appendRows(second, entryRows, []seenRow{{"a", rowDigest{}}, {"c", rowDigest{7: 3}}})
	for _, c := range []struct {
		name string
		text []byte
		want string
	}{
		{"1", first, "[{a [0 0 0 0 0 0 0 0]} {b [0 0 0 0 0 0 0 0]} {c [0 0 0 0 0 0 0 0]}]"},
		{"2", second, "[{a [1 65535 0 0 0 0 0 0]} {c [0 0 0 0 0 0 0 3]}]"},
		{"torn", second[:len(second)-1], "[{a [1 65535 0 0 0 0 0 0]} {c [0 0 0 0 0 0 0 0]}]"},
	} {
		m := journalState{seen: seenRows{max: 10}}
		if _, err := m.read(c.text, "t"); err != nil || fmt.Sprint(m.seen.rows) != c.want {
			t.Errorf("version %s: %v, %v\nwant %s", c.name, m.seen.rows, err, c.want)
		}
	}
}

// TestLargeJournal checks that a file with many long keys can be opened again.
func TestLargeJournal(t *testing.T) {
	t.Parallel()
	const rows, most = 70_000, 100_000 // 71 MB
	m := journalState{seen: seenRows{max: most}}
	for i := range rows {
		key := fmt.Sprintf("%0*d", maxKeyBytes, i)
		m.seen.rows = append(m.seen.rows, seenRow{key: key})
	}
	dir, err := vfs.OS().MakeDir(t.TempDir(), 0o700)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	j, known, err := openJournal(dir, "t", &journalState{})
	if err != nil || known {
		t.Fatal(known, err)
	}
	if err := j.rewrite(&m); err != nil {
		t.Fatal(err)
	}
	if err := j.close(); err != nil {
		t.Fatal(err)
	}
	again := journalState{seen: seenRows{max: most}}
	j, known, err = openJournal(dir, "t", &again)
	if err != nil || !known || len(again.seen.rows) != rows {
		t.Fatalf("%d rows, want %d; known %t, %v", len(again.seen.rows), rows, known, err)
	}
	if err := j.close(); err != nil {
		t.Error(err)
	}
}
