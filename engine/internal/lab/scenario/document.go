package scenario

import (
	"errors"
	"fmt"
	"math"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/stream"
)

// kind is the kind of file, for messages of the config package.
var kind = config.Kind{Noun: "scenario", Least: "`duration:`, `load:`, and `workers:` or `link:`"}

// Load reads a scenario file. Errors in its contents are reported with their positions.
func Load(path string) (*Scenario, error) {
	d := newDocument(path)
	return d.read(config.DecodeFile(path, kind, d))
}

// Parse reads a scenario from text. path gives the scenario its name, unless the text has one, and
// is used in errors.
func Parse(path string, text []byte) (*Scenario, error) {
	d := newDocument(path)
	return d.read(config.Decode(path, text, kind, d))
}

// document is a scenario as written in a file. Keys that have the same form in a Scenario are
// decoded into it directly. Validate converts the others.
type document struct {
	Scenario
	Slots   int           `yaml:"slots" min:"1" max:"100000"` // default of the workers
	Workers []workers     `yaml:"workers"`
	Network network       `yaml:"network"`
	Size    *size         `yaml:"size"`
	Cost    *size         `yaml:"cost"`
	Shared  *server       `yaml:"shared"`
	Events  []event       `yaml:"events"`
	Timeout timeout       `yaml:"timeout"`
	Expect  []expectation `yaml:"expect"`
	Worst   []expectation `yaml:"worst"`
}

type workers struct {
	Count  int `yaml:"count" min:"1" max:"10000"`
	server     // each
}

type server struct {
	Rate  float64 `yaml:"rate" min:"0" max:"1e12"` // cost per second
	Slots int     `yaml:"slots" min:"1" max:"100000"`
}

type network struct {
	RTT    time.Duration `yaml:"rtt" max:"1h"`
	Jitter time.Duration `yaml:"jitter" max:"1h"`
}

// size is a distribution of the cost of batches. In the file it is a mapping, or a number for a
// constant cost.
type size struct {
	Lognormal *float64  `yaml:"lognormal" min:"1e-6" max:"4"`
	Uniform   []float64 `yaml:"uniform" min:"1" max:"1e9"`
	Constant  *float64  `yaml:"constant" min:"1e-9" max:"1e9"`
}

// UnmarshalText parses a constant.
func (z *size) UnmarshalText(text []byte) error {
	v, err := strconv.ParseFloat(string(text), 64)
	if err != nil || !(v >= 1e-9 && v <= 1e9) {
		return fmt.Errorf("%q is not a number from 1e-9 to 1e9", text)
	}
	z.Constant = &v
	return nil
}

// event is an event in the file: a time, the affected workers, and one change to them.
type event struct {
	At       *time.Duration `yaml:"at" required:"true" doc:"when it begins, such as 10s"`
	For      time.Duration  `yaml:"for" min:"1ms" max:"24h"`
	Workers  chosen         `yaml:"workers" required:"true" doc:"all, [0, 1] or {fastest: 4}"`
	Rate     *rate          `yaml:"rate"`
	Hang     yes            `yaml:"hang"`
	Pause    yes            `yaml:"pause"`
	Fail     *fail          `yaml:"fail"`
	Throttle *throttle      `yaml:"throttle"`
	Restart  yes            `yaml:"restart"`
	Credit   *float64       `yaml:"credit" min:"0" max:"1e15"`
}

type fail struct {
	After time.Duration `yaml:"after" max:"1h"`
	Share *float64      `yaml:"share" min:"0" max:"1"`
}

type throttle struct {
	Rate       float64       `yaml:"rate" required:"true" min:"1e-3" max:"1e9" doc:"batches per second"`
	RetryAfter time.Duration `yaml:"retry_after" min:"1ms" max:"1h"`
}

// chosen are the workers of an event. In the file, they are the word all, a list of indices, or a
// mapping such as {fastest: 4}, for the four fastest workers.
type chosen struct {
	Fastest int   `yaml:"fastest" min:"1"`
	Listed  []int `yaml:",list" min:"0"`
	all     bool
}

// UnmarshalText parses the word "all".
func (c *chosen) UnmarshalText(text []byte) error {
	if c.all = string(text) == "all"; !c.all {
		return fmt.Errorf("%q is neither all, nor [0, 1], nor {fastest: 4}", text)
	}
	return nil
}

// rate is a factor such as x0.25, or a rate in cost per second.
type rate struct{ factor, limit float64 }

// UnmarshalText parses a factor or a rate.
func (r *rate) UnmarshalText(text []byte) error {
	number, times := strings.CutPrefix(string(text), "x")
	v, err := strconv.ParseFloat(number, 64)
	switch {
	case err != nil || !(v > 0) || times && v >= 1e6 || v > 1e12:
		return fmt.Errorf("%q is not a rate; write x0.25 for a quarter, or a rate above 0", text)
	case times:
		r.factor = v
	default:
		r.limit = v
	}
	return nil
}

// yes is the value of a key that can only be true.
type yes bool

// UnmarshalText parses the word "true".
func (y *yes) UnmarshalText(text []byte) error {
	if *y = string(text) == "true"; !*y {
		return errors.New("write true, or leave the key out")
	}
	return nil
}

// timeout is the value of the key timeout. Zero means that the timeout is estimated.
type timeout time.Duration

// UnmarshalText parses a duration from 1ms to 24h, or the word auto, which means zero.
func (t *timeout) UnmarshalText(text []byte) error {
	if string(text) == "auto" {
		return nil
	}
	d, err := time.ParseDuration(string(text))
	if err != nil || d < time.Millisecond || d > 24*time.Hour {
		return fmt.Errorf("%q is neither auto nor a duration from 1ms to 24h", text)
	}
	*t = timeout(d)
	return nil
}

// expectation has the bounds for one algorithm, by figure.
type expectation struct {
	Algorithm string  `yaml:",key"`
	Bounds    []bound `yaml:",value"`
	Where     config.Place
}

type bound struct {
	Figure string `yaml:",key"`
	Text   string `yaml:",value"`
}

func newDocument(name string) *document {
	name = strings.TrimSuffix(path.Base(filepath.ToSlash(name)), ".yaml")
	d := &document{Slots: 1}
	d.Scenario = Scenario{Name: name, Service: Exponential, Senders: 1}
	return d
}

// read returns the converted scenario, or err if it is not nil.
func (d *document) read(err error) (*Scenario, error) {
	if err != nil {
		return nil, err
	}
	return &d.Scenario, nil
}

// Validate converts the document into its Scenario. It returns an error for missing keys, for wrong
// values, and for keys that exclude each other.
func (d *document) Validate() error {
	d.RTT, d.Jitter, d.Scenario.Timeout = d.Network.RTT, d.Network.Jitter, time.Duration(d.Timeout)
	if err := errors.Join(d.translateWorkers(), d.translateSize(), d.checkLoad(),
		d.checkLink()); err != nil {
		return err
	}
	if err := d.checkWhole(); err != nil {
		return err
	}
	return errors.Join(d.translateEvents(), d.translateBounds(d.Expect, "expect", false),
		d.translateBounds(d.Worst, "worst", true))
}

const maxWorkers = 10_000

func (d *document) translateWorkers() error {
	s := &d.Scenario
	for i, w := range d.Workers {
		count := max(1, w.Count)
		if len(s.Workers)+count > maxWorkers {
			return stream.OptionErrorf(fmt.Sprintf("workers[%d]", i), "more than %d workers",
				maxWorkers)
		}
		if w.Rate == 0 {
			return stream.OptionErrorf(fmt.Sprintf("workers[%d].rate", i), "must be more than 0")
		}
		s.Workers = append(s.Workers, slices.Repeat([]Worker{w.worker(d.Slots)}, count)...)
	}
	if d.Shared != nil {
		if d.Shared.Rate == 0 {
			return stream.OptionErrorf("shared.rate", "must be more than 0")
		}
		w := d.Shared.worker(1)
		s.Shared = &w
	}
	return nil
}

func (v *server) worker(slots int) Worker {
	if v.Slots > 0 {
		slots = v.Slots
	}
	return Worker{Rate: v.Rate, Slots: slots}
}

func (d *document) translateSize() error {
	z, key := d.Size, "size"
	if z == nil {
		z, key = d.Cost, "cost"
	}
	switch {
	case z == nil:
	case d.Size != nil && d.Cost != nil:
		return stream.OptionErrorf("cost", "size and cost are the same figure; give one of them")
	case z.Constant != nil && z.Lognormal == nil && z.Uniform == nil:
		d.Scenario.Size = Size{Kind: Constant, A: *z.Constant}
	case z.Lognormal != nil && z.Constant == nil && z.Uniform == nil:
		d.Scenario.Size = Size{Kind: Lognormal, A: *z.Lognormal}
	case z.Uniform != nil && z.Constant == nil && z.Lognormal == nil:
		u := z.Uniform
		if len(u) != 2 || u[0] > u[1] || u[0] != math.Trunc(u[0]) || u[1] != math.Trunc(u[1]) {
			return stream.OptionErrorf(key+".uniform", "takes two whole numbers, the smaller "+
				"first: [1, 100]")
		}
		d.Scenario.Size = Size{Kind: Uniform, A: u[0], B: u[1]}
	default:
		return stream.OptionErrorf(key, "is one of lognormal, uniform and constant")
	}
	return nil
}

func (d *document) checkLoad() error {
	switch l := &d.Load; {
	case l.Poisson > 0 && (l.Every > 0 || l.Batches > 0):
		return stream.OptionErrorf("load", "poisson can be combined only with burst")
	case l.Burst.Batches > 0 && l.Poisson == 0:
		return stream.OptionErrorf("load", "burst needs poisson")
	case !l.Saturated && l.Poisson == 0 && l.Every == 0 && l.Batches == 0:
		return stream.OptionErrorf("load", "is missing; write saturated, {poisson: 0.5}, {every: "+
			"25ms} or {batches: 500}")
	case d.Link != nil && l.Poisson > 0:
		return stream.OptionErrorf("load", "poisson is a share of the workers' rate, but a link "+
			"has no such rate; write every or batches")
	}
	return nil
}

func (d *document) checkLink() error {
	if d.Link == nil {
		return nil
	}
	if k := d.Link.Concurrency; k.Start > 0 && k.Exp == 0 {
		return stream.OptionErrorf("link.concurrency", "knee_start needs knee_exp")
	}
	if k := d.Link.Rate; k.Start > 0 && k.Exp == 0 {
		return stream.OptionErrorf("link.rate", "knee_start needs knee_exp")
	}
	return nil
}

// checkWhole checks combinations of keys. A scenario has either workers or a link, a single
// receiver with a delay that depends on its load. For a link, checkWhole adds the one worker that
// stands for it.
func (d *document) checkWhole() error {
	s := &d.Scenario
	switch p := s.Pauses; {
	case s.Warmup >= s.Duration:
		return stream.OptionErrorf("warmup", "is %v of a duration of %v; no time would be measured",
			s.Warmup, s.Duration)
	case s.Link == nil && len(s.Workers) == 0:
		return stream.OptionErrorf("", "needs workers or a link")
	case s.Link != nil && len(s.Workers) > 0:
		return stream.OptionErrorf("link", "workers and link exclude each other; a link is a "+
			"single receiver")
	case s.Link != nil && (s.Shared != nil || p != Pauses{}):
		return stream.OptionErrorf("link", "shared and pauses are for workers, but this is a link")
	case s.Shared != nil && p != Pauses{}:
		return stream.OptionErrorf("pauses", "need workers that serve; workers in front of a "+
			"shared server only forward")
	case p != Pauses{} && (p.Every == 0 || p.For >= p.Every):
		return stream.OptionErrorf("pauses", "takes every and a shorter for: {every: 10s, for: "+
			"500ms, phase: random}")
	case len(s.Joins) > s.Senders:
		return stream.OptionErrorf("joins", "%d joins for %d senders", len(s.Joins), s.Senders)
	}
	for i, at := range s.Joins {
		if at > s.Duration {
			return stream.OptionErrorf(fmt.Sprintf("joins[%d]", i), "%v is after the end at %v", at,
				s.Duration)
		}
	}
	if s.Link != nil {
		s.Workers = []Worker{{Slots: 1}}
	}
	return nil
}
