package main

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func TestUnchanged(t *testing.T) {
	const smaps = `00400000-01163000 r-xp 00000000 fe:00 9986245                            /opt/penstock
Size:              13708 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me sd
01163000-01f1f000 r--p 00d63000 fe:00 9986245                            /opt/penstock
Rss:                8000 kB
Anonymous:             0 kB
01f1f000-01f2f000 r--p 01b1f000 fe:00 9986245                            /opt/penstock
Anonymous:             4 kB
01f2f000-02036000 rw-p 01b2f000 fe:00 9986245                            /opt/penstock
Anonymous:             0 kB
02036000-02037000 r--s 01b2f000 fe:00 9986245                            /opt/penstock
Anonymous:             0 kB
825db800000-825dbc00000 r--p 00000000 00:00 0
Anonymous:             0 kB
7f247bb6c000-7f247bb92000 r--p 00000000 fe:00 326269                     /usr/lib/libc.so.6
Anonymous:             0 kB
7f247bb92000-7f247bb93000 r-xp 00000000 fe:00 9986245                    /opt/penstock (deleted)
Anonymous:             0 kB
`
	want := []mapped{{0x400000, 0x1163000}, {0x1163000, 0x1f1f000}}
	if got := unchanged(strings.NewReader(smaps), "/opt/penstock"); !slices.Equal(got, want) {
		t.Errorf("%#x, want %#x", got, want)
	}
}

// What was handed back is there again when it is needed.
func TestHandBack(t *testing.T) {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if len(unchanged(f, exe)) == 0 {
		t.Error("no part of this program can be handed back")
	}
	for range 3 {
		handBack()
	}
	if got := strings.Repeat("ab", 2); got != "abab" {
		t.Errorf("%q", got)
	}
}
