package control
import "fmt"
func (m *Machine) Dbg() string {
 s := fmt.Sprintf("free %d firsts %d ready %d open %d opened %d global %+v live %d unsent %d started %d unsaved %d shut %v\n", m.free, m.firsts, m.ready, m.open, m.opened, m.global, m.live, m.unsent, m.started, m.unsaved, m.replayShut)
 for _, l := range m.lanes { s += fmt.Sprintf("lane %d at %d places %d ready %v open %v flying %d awaited %d closed %v br %+v broken %v halted %v first %v limits %+v oldest %v\n", l.num, l.at, l.places, l.ready, l.open, l.flying, l.awaited, l.closed, l.br, l.broken, l.halted, l.first != nil, l.limits, l.oldest != nil) }
 pr := func(n string, it *item) { only, ok := it.turn(); s += fmt.Sprintf("%s item %d rank %+v state %d tried %v running %d waited %v firstOf %v turn %v %v\n", n, it.seq, it.rank, it.state, it.tried, len(it.running), it.waited, it.firstOf != nil, only != nil, ok)
  for i := range it.nodes { st := it.nodes[i].state; s += fmt.Sprintf("    key %d flying %d interrupted %v prev %v head %d\n", st.key, st.flying, st.interrupted, it.nodes[i].prev != nil, st.head.item.seq) } }
 for i := range m.redo.len() { pr("redo", m.redo.at(i)) }
 for i := range m.fresh.len() { pr("fresh", m.fresh.at(i)) }
 for _, it := range m.delayed.s { pr("delayed", it) }
 for _, it := range m.hands { pr("hands", it) }
 return s
}
