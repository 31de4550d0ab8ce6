package endtoend

import (
	"encoding/json"
	"os/exec"
	"testing"
)

// TestDemo checks that the demo loses nothing and delivers nothing twice, although one of its
// receivers dies.
func TestDemo(t *testing.T) {
	t.Parallel() // it takes 20 s, in which it is mostly idle
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(bin, "demo", "--json").Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var got struct {
		OK                      bool
		Records, Lost, Repeated int
		Delivered               int
		Workers                 []struct {
			Name              string
			Delivered, Failed int
		}
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	if !got.OK || got.Lost != 0 || got.Repeated != 0 || got.Delivered != got.Records ||
		len(got.Workers) != 2 {
		t.Errorf("%s: want all records taken once by two workers", out)
	}
	for _, w := range got.Workers {
		if w.Delivered == 0 || w.Name == "fast" && w.Failed == 0 {
			t.Errorf("%+v: want both to have delivered, and the fast one, which was killed, "+
				"to have failed too", w)
		}
	}
}
