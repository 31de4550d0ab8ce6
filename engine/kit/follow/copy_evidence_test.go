package follow

import (
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/kit/unpack"
	"github.com/penstock-io/penstock/fileid"
)

// TestMayBe checks which new files may have the data of an awaiting file of which nothing was read.
func TestMayBe(t *testing.T) {
	const text = "first line\nsecond line\n"
	long := strings.Repeat(text, fileid.MaxHead)
	for _, c := range []struct {
		name string
		// content of the awaiting file a.log when it was last seen, and when its id was made
		was, id string
		is      string // content of the new file
		label   string // name of the new file
		phase   phase
		change  func(f *file, c *Catalogue)
		want    bool
	}{
		{name: "a copy", was: text, id: text, is: text, label: "b.log", want: true},
		{name: "a copy that has grown", was: text, id: text, is: text + text, label: "b.log",
			want: true},
		{name: "a shorter file", was: long, id: long, is: long[:fileid.MaxHead], label: "b.log"},
		{name: "another text", was: text, id: text, is: strings.ToUpper(text), label: "b.log"},
		{name: "an empty original", was: "", id: "", is: text, label: "b.log"},
		{name: "an id of fewer bytes than the original has", was: text, id: text[:5], is: text,
			label: "b.log"},
		{name: "a long copy", was: long, id: long, is: long, label: "b.log", want: true},
		{name: "a long file, id of fewer bytes", was: long, id: long[:fileid.MaxHead-1], is: long,
			label: "b.log"},
		{name: "the name of the original", was: text, id: text, is: text, label: "a.log"},
		{name: "the name, but modified before its creation", was: text, id: text, is: text,
			label: "a.log", change: func(f *file, _ *Catalogue) { f.info.ModTime = 5 }, want: true},
		{name: "the name, by content", was: text, id: text, is: text, label: "a.log",
			change: func(_ *file, c *Catalogue) { c.o.Identity = ByContent }, want: true},
		{name: "the name, the original was rewritten in place", was: text, id: text, is: text,
			label: "a.log", phase: displaced, want: true},
		{name: "a compressed file", was: text, id: text, is: text, label: "b.log",
			change: func(f *file, _ *Catalogue) { f.view = new(unpack.File) }},
	} {
		catalogue := new(Catalogue)
		id := fileid.New(fileid.File{Head: []byte(c.id)}, nil)
		w := &file{label: "a.log", info: stat{Size: int64(len(c.was))},
			entry: &Entry{id: id, phase: c.phase}}
		f := &file{label: c.label, info: stat{Size: int64(len(c.is)), Birth: 10, ModTime: 20}}
		if c.change != nil {
			c.change(f, catalogue)
		}
		k := &copies{c: catalogue}
		head := []byte(c.is[:min(len(c.is), fileid.MaxHead)])
		if got := k.mayBe(f, w, head); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
