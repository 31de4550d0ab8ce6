//penstock:pure

package listen

// maxPeers bounds the number of source addresses that are counted separately, because senders can
// forge addresses.
const maxPeers = 1024

// drops counts dropped datagrams, in total and for each of the first maxPeers source addresses. The
// zero value has no drops.
type drops struct {
	total  int64
	byPeer map[string]int64
}

// add counts a drop.
func (d *drops) add(peer string) {
	d.total++
	if _, known := d.byPeer[peer]; !known && len(d.byPeer) >= maxPeers {
		return
	}
	if d.byPeer == nil {
		d.byPeer = make(map[string]int64)
	}
	d.byPeer[peer]++
}

// most returns the address with most drops, and the number of its drops.
func (d *drops) most() (peer string, count int64) {
	for p, n := range d.byPeer {
		if n > count || n == count && p < peer {
			peer, count = p, n
		}
	}
	return peer, count
}
