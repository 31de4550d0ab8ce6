//penstock:pure

package generate

import (
	"math/bits"
	"strconv"
)

// visitorCount is the number of visitors. A visitor with a lower number makes more requests.
const visitorCount = 600

// visitor makes all its requests from one address with one browser.
type visitor struct {
	host     string
	user     string // "" if not logged in
	agent    int
	language string
	id       uint64
}

// visit is one random request. Its slices are valid only until the next request.
type visit struct {
	visitor   *visitor
	page      *page
	target    []byte // path and query, as sent
	method    string
	protocol  string
	status    int
	size      int64 // size of the response; -1 if it has no body
	referrer  string
	at        int64 // microseconds since start
	took      int64 // microseconds
	trace     [2]uint64
	item, qty uint64
}

func (g *Generator) newVisitor() visitor {
	r := g.random.Uint64()
	v := visitor{
		agent: g.agents.draw(g.random.Uint64()), language: languages[r>>56%uint64(len(languages))],
		id: 1<<53 + g.random.Uint64()>>11, // more digits than a float64 can represent
	}
	if r&15 == 0 {
		v.host = "2001:db8:" + strconv.FormatUint(r>>8&0xffff, 16) + "::" +
			strconv.FormatUint(r>>24&0xffff, 16)
	} else {
		// RFC 2544: reserved for benchmarks
		v.host = "198." + octet(r>>16, 18, 19) + "." + octet(r>>24, 0, 255) + "." +
			octet(r>>32, 1, 254)
	}
	if r>>40&7 == 0 {
		v.user = users[r>>44%uint64(len(users))]
	}
	return v
}

func octet(r uint64, low, high uint64) string {
	return strconv.FormatUint(low+r&0xff%(high-low+1), 10)
}

// draw draws the next request.
func (g *Generator) draw() {
	v, a, b := &g.visit, g.random.Uint64(), g.random.Uint64()
	// The mean time between two requests is about 2 ms. Some are much longer, up to 66 ms.
	g.now += int64(200 + (a&0x3ff)<<(bits.TrailingZeros64(a>>10|1<<6)))
	v.at = g.now
	a >>= 18
	v.visitor = &g.visitors[g.hosts.draw(a)]
	v.page = &pages[g.pages.draw(a>>picksBits)]
	a >>= 2 * picksBits
	v.method, v.protocol = v.page.method, "HTTP/1.1"
	if a&3 == 0 {
		v.protocol = "HTTP/2.0"
	}
	v.item, v.qty = b%48_211+1, b>>20&3+1
	v.target = append(v.target[:0], v.page.path...)
	if v.page.item {
		v.target = strconv.AppendUint(v.target, v.item, 10)
	}
	if v.page.query != "" && a>>2&1 == 0 {
		v.target = append(v.target, v.page.query...)
		v.target = strconv.AppendUint(v.target, b>>24&31+1, 10)
	}
	v.referrer = referrers[a>>3%uint64(len(referrers))]
	if a>>9&1 == 0 && v.page.from != "" {
		v.referrer = v.page.from
	}
	v.trace = [2]uint64{a ^ b*0x9e3779b97f4a7c15, b}
	g.answer(v, b>>29)
}

// answer draws status, size and time of the response so that they fit together.
func (g *Generator) answer(v *visit, r uint64) {
	p := v.page
	v.size = p.size + int64(r&0xffff)%(p.size/2+1)
	v.took = p.micros + p.micros*int64(r>>16&0xff)>>7
	v.status = p.status
	switch odds := r >> 24 & 1023; {
	case odds < 60:
		if p.cached {
			v.status, v.size = 304, -1
		}
	case odds < 75:
		if p.item {
			v.status, v.size = 404, 512
		}
	case odds < 80:
		v.status, v.size = 500, 1293
		v.took *= 4
	case odds < 83:
		v.status, v.size = 503, 190
		v.took = 10_000_000 + v.took
	case odds < 88 && v.method == "POST":
		v.status, v.size = 422, 340
	}
	if v.status == 204 || v.method == "HEAD" {
		v.size = -1
	}
}
