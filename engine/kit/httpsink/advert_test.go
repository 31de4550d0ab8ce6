package httpsink

import (
	nethttp "net/http"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/stream"
)

func TestAdvert(t *testing.T) {
	a := newAdvert()
	if b := newAdvert(); a.sender == b.sender || len(a.sender) != 16 {
		t.Errorf("two lanes are senders %q and %q; want two names of 16 digits", a.sender, b.sender)
	}
	h := nethttp.Header{}
	if r := a.read(h, time.Second); r != (stream.Report{}) {
		t.Errorf("an answer without the header reports %+v", r)
	}
	h.Set(stream.CreditHeader, "nonsense")
	if r := a.read(h, time.Second); r != (stream.Report{}) {
		t.Errorf("an answer with nonsense in the header reports %+v", r)
	}
	a.setHeader(h, 7)
	if got := h.Get(stream.SenderHeader); got != a.sender+"; unit=records; cost=7" {
		t.Errorf("the request says %q; want the name and the cost before anything was measured",
			got)
	}
	h.Set(stream.CreditHeader, "epoch=3; credit=20; taken=9; queue=2; slots=4; wait=30000; "+
		"service=50000")
	want := stream.Report{
		Epoch: 3, Credit: 20, Taken: 9, QueueLen: 2, Slots: 4, QueueWait: 30 * time.Millisecond,
		Service: 50 * time.Millisecond,
	}
	if r := a.read(h, 90*time.Millisecond); r != want {
		t.Errorf("the report is %+v, want %+v", r, want)
	}
	h.Set(stream.CreditHeader, "epoch=3; credit=20; unit=bytes")
	if r := a.read(h, time.Second); r != (stream.Report{}) {
		t.Errorf("a grant in another unit reports %+v", r)
	}
	h.Set(stream.CreditHeader, "epoch=3; credit=20; taken=9; queue=2; slots=4; wait=30000; "+
		"service=50000; cost=5; unit=records")
	want.Cost = 5
	if r := a.read(h, 90*time.Millisecond); r != want {
		t.Errorf("the report is %+v, want %+v", r, want)
	}
	a.read(h, 300*time.Millisecond) // the network was slow once
	a.setHeader(h, 7)
	name, network, _ := strings.Cut(h.Get(stream.SenderHeader), "; network=")
	if name != a.sender+"; unit=records; cost=7" || len(network) != 5 || network[:3] != "100" {
		t.Errorf("the request says %q; want about 10 ms of network", h.Get(stream.SenderHeader))
	}
	if d, err := time.ParseDuration(network + "us"); err != nil || d < 10*time.Millisecond ||
		d > 11*time.Millisecond {
		t.Errorf("the network takes %v, want about 10 ms", d)
	}
}
