package follow

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	stateNames = []string{"listed", "nameless", "unlisted", "finished", "awaiting",
		"ended"}
	eventNames = []string{
		"renamed", "losesName", "deleted", "isFinished", "ends",
	}
)

// TestTransitions checks that the table in the comment of state equals that of the code. Every
// state can be reached and leads to ended, which is final. The test prints the states and
// transitions.
func TestTransitions(t *testing.T) {
	source, err := os.ReadFile("state.go")
	if err != nil {
		t.Fatal(err)
	}
	var documented, coded []string
	for _, m := range regexp.MustCompile(`(?m)^//\t(\w+) +(\w+) +(\w+)`).FindAllStringSubmatch(string(source), -1)[1:] {
		documented = append(documented, strings.Join(m[1:], " "))
	}
	for from, events := range transitions {
		for e, to := range events {
			coded = append(coded, fmt.Sprint(stateNames[from], " ", eventNames[e], " ", stateNames[to]))
		}
	}
	slices.Sort(documented)
	slices.Sort(coded)
	if !slices.Equal(documented, coded) {
		t.Errorf("documented are\n%s\ncoded are\n%s", strings.Join(documented, "\n"), strings.Join(coded, "\n"))
	}
	reached := map[state]bool{listed: true, unlisted: true}
	for more := true; more; {
		more = false
		for from := range maps.Clone(reached) {
			for e := range event(len(eventNames)) {
				if to := from.on(e); !reached[to] {
					reached[to], more = true, true
				}
			}
		}
	}
	n := 0
	for from := range state(len(stateNames)) {
		if !reached[from] {
			t.Errorf("%s cannot be reached", stateNames[from])
		}
		var out []string
		for e := range event(len(eventNames)) {
			to := from.on(e)
			if from == ended && to != ended {
				t.Errorf("ended is left by %s", eventNames[e])
			}
			if _, ok := transitions[from][e]; ok || from != ended && to == ended {
				out = append(out, eventNames[e]+" to "+stateNames[to])
				n++
			}
		}
		if from.on(ends) != ended {
			t.Errorf("%s does not end", stateNames[from])
		}
		t.Logf("%-8s %s", stateNames[from], strings.Join(out, ", "))
	}
	t.Logf("%d states, %d transitions", len(stateNames), n)
}
