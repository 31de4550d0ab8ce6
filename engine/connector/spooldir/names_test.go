package spooldir

import "testing"

func TestNames(t *testing.T) {
	n := names{include: []string{"*.log", "app/*.txt", "*.done"}, exclude: []string{"b*"}, suffix: ".done"}
	for name, want := range map[string]bool{
		"a.log": true, "b.log": false, "sub/a.log": true, "sub/b.log": false, "a.txt": false, "app/a.txt": true,
		"x/app/a.txt": false,
		".a.log":      false, ".penstock.lock": false, "a.log.done": false, "a.log.done.12": false,
		"a.done": false, "a.done.x.log": true,
		"a.log.gz": false,
	} {
		if got := n.wanted(name); got != want {
			t.Errorf("wanted(%q) = %v, want %v", name, got, want)
		}
	}
}
