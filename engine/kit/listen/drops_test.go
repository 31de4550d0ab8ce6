package listen

import (
	"fmt"
	"testing"
)

// TestDropsOfPeers checks that the drops of 1,024 source addresses are counted for each of them,
// and those of further addresses only in total.
func TestDropsOfPeers(t *testing.T) {
	var d drops
	for round := range 3 {
		for i := range 5000 {
			d.add(fmt.Sprintf("10.0.%d.%d", i/256, i%256))
		}
		if round == 1 {
			d.add("10.0.3.255") // the last address that is counted
		}
	}
	if peer, n := d.most(); len(d.byPeer) != 1024 || d.total != 15_001 || peer != "10.0.3.255" ||
		n != 4 {
		t.Errorf("%d addresses, %d drops, most from %s: %d; want 1024, 15001 and 4 from 10.0.3.255",
			len(d.byPeer), d.total, peer, n)
	}
}
