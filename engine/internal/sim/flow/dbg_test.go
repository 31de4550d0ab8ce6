package flow

import (
	"fmt"
	"os"
	"testing"

	"github.com/penstock-io/penstock/flow/control"
)

func TestDbg(t *testing.T) {
	s, _ := Load(os.Getenv("PENSTOCK_SCENARIOS") + "/" + os.Getenv("SC") + ".yaml")
	spec, _ := Find(os.Getenv("ALG"), "")
	n := 0
	m, _ := control.New(s.Config(spec, 1))
	_, err := Run(s, spec, Options{Seed: 1, Trace: func(e *control.Event, c []control.Command) {
		n++
		m.Step(*e, nil)
		if n < 4000000 && (n%2000 == 0 || n < 60) {
			st := m.Status()
			fmt.Println(e.Now, e.Kind, e.Outcome, len(c), "w", st.Lanes[0].Window, st.Lanes[0].State, st.Lanes[0].Gate, st.Lanes[0].Reason, "infl", st.InFlight, "wait", st.Waiting, "room", m.Room())
			at, ok := m.Wake()
			fmt.Println("   wake", at, ok)
		}
	}})
	st := m.Status()
	for _, l := range st.Lanes {
		fmt.Printf("%+v\n", l)
	}
	fmt.Println(n, err, st.Waiting, st.InFlight, m.Room())
	at, ok := m.Wake()
	fmt.Println("   wake", at, ok)
}
