package http

import (
	"context"
	"errors"
	"fmt"
	"net"
	nethttp "net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// wires are the connections to one endpoint in the clear. They are safe for concurrent use. A connection is closed when it was not used for
// idlePatience, as soon as another one is given back; none is kept after close.
type wires struct {
	dialer  net.Dialer
	address string

	mu     sync.Mutex // guards what follows
	kept   []*wire    // the last used last; at most inFlight
	closed bool
}

// straight says whether requests go to target over a connection of their own: in the clear, by no proxy, and to a host whose name
// goes into a head as it stands.
func straight(o *Options, target *url.URL) bool {
	plain := !strings.ContainsFunc(target.Host, func(c rune) bool { return c <= ' ' || c == '%' || c >= 0x7F })
	return target.Scheme == "http" && (o.Proxy == "" || o.Proxy == proxyNone) && plain
}

func newWires(d net.Dialer, target *url.URL) *wires {
	port := target.Port()
	if port == "" {
		port = "80"
	}
	return &wires{dialer: d, address: net.JoinHostPort(target.Hostname(), port)}
}

// post makes one request. When a connection that was kept turns out to be stale, before a byte of an answer, it is made again on a fresh
// one: if nothing had been written, or keyed lets the receiver tell a repetition, and its answer is not overdue at expect.
func (p *wires) post(
	ctx context.Context, r *nethttp.Request, body []byte, keyed bool, expect time.Time, take func(*nethttp.Response),
) error {
	for fresh := false; ; fresh = true {
		w, err := p.get(ctx, fresh)
		if err != nil {
			return err
		}
		reused, keep := !w.used.IsZero(), false
		if err = w.begin(ctx, r.Method, r.URL.RequestURI(), r.Host, r.Header, len(body)); err == nil {
			keep, err = w.exchange(r.Method, body, take)
		}
		sent, heard := w.sent, w.heard
		p.put(w, keep)
		switch {
		case err == nil:
			return nil
		case !reused || heard || sent > 0 && !keyed || context.Cause(ctx) != nil:
			return err
		case !expect.IsZero() && time.Now().After(expect):
			return fmt.Errorf("%w: %w", errOverdue, err)
		}
	}
}

// get returns the connection that was used last and still stands, or else, or when it has to be fresh, a new one.
func (p *wires) get(ctx context.Context, fresh bool) (*wire, error) {
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	for !fresh {
		w := p.pop()
		if w == nil {
			break
		}
		if w.fit() {
			return w, nil
		}
		_ = w.Close() // the receiver has closed it
	}
	c, err := p.dialer.DialContext(ctx, "tcp", p.address)
	if err != nil {
		return nil, err
	}
	return newWire(c)
}

func (p *wires) pop() *wire {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.kept) - 1
	if n < 0 {
		return nil
	}
	w := p.kept[n]
	p.kept[n] = nil
	p.kept = p.kept[:n]
	return w
}

// put takes w back, to keep it or to close it.
func (p *wires) put(w *wire, keep bool) {
	w.ctx = nil
	p.mu.Lock()
	old := 0
	for old < len(p.kept) && time.Since(p.kept[old].used) > idlePatience {
		old++
	}
	over := slices.Clone(p.kept[:old])
	p.kept = slices.Delete(p.kept, 0, old)
	if keep && !p.closed && len(p.kept) < inFlight {
		p.kept = append(p.kept, w)
	} else {
		over = append(over, w)
	}
	p.mu.Unlock()
	for _, w := range over {
		_ = w.Close() // nothing is on its way
	}
}

func (p *wires) close() error {
	p.mu.Lock()
	kept := p.kept
	p.kept, p.closed = nil, true
	p.mu.Unlock()
	var errs []error
	for _, w := range kept {
		errs = append(errs, w.Close())
	}
	return errors.Join(errs...)
}
