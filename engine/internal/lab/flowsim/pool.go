//penstock:pure

package flowsim

import (
	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/window"
)

// report returns the load report that worker v sends with its response to j. The numbers come from
// window.Pool, which is production code. The report is empty if the algorithm of the run does not
// use reports.
func (x *sim) report(v *server, j *job) control.Report {
	if !x.spec.Reports {
		return control.Report{}
	}
	w := v
	if x.shared != nil {
		w = &x.servers[j.a.lane]
	}
	ad := w.pool.Done(x.events.Now(), uint64(j.a.sender), j.a.cost, v.waits, x.s.RTT+x.s.Jitter)
	if w.credit != nil {
		ad.Credit = uint64(w.credit.Limit)
		if w.credit.Limit > 0 {
			ad.Credit += ad.Taken
		}
	}
	r := control.Report{
		Epoch: w.epoch + 1, Credit: ad.Credit, Taken: ad.Taken,
		QueueLen: ad.QueueLen, Slots: v.cfg.Slots,
	}
	if !x.spec.HidesTimes {
		r.QueueWait, r.Service = j.waited, j.service
	}
	return r
}

type pool = window.Pool
