package trace

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/penstock-io/penstock/flow/control"
)

// maxLine bounds a line of a trace.
const maxLine = 16 << 20

// Player replays a trace, event by event, on a machine of its own, and compares every command. It
// is not safe for concurrent use.
type Player struct {
	About   About
	Config  control.Config
	Machine *control.Machine // its state after Event
	// Names of the lanes, as far as the trace has given them. A removed lane keeps its name.
	Names    map[int32]string
	Event    control.Event     // the last event played
	Commands []control.Command // the resulting commands
	Events   int               // number of events played
	// Torn means that the last line is incomplete: the writer was killed or is still writing.
	Torn  bool
	Ended string // why the trace has ended; "" if it does not say

	in    *bufio.Scanner
	line  int
	ahead *line // the event of the next line
	got   []command
	atEnd bool
	wrong error // error in the next line, returned repeatedly by look
}

// NewPlayer reads the header and returns an error if it is invalid.
func NewPlayer(r io.Reader) (*Player, error) {
	p := &Player{in: bufio.NewScanner(r), Names: make(map[int32]string), line: 1}
	p.in.Buffer(make([]byte, 0, 64<<10), maxLine)
	if !p.in.Scan() {
		return nil, errors.Join(errors.New("is empty"), p.in.Err())
	}
	var h header
	if err := strict(p.in.Bytes(), &h); err != nil {
		return nil, fmt.Errorf("line 1 is not the header of a trace: %w", err)
	}
	var err error
	if p.Config, err = h.config(); err != nil {
		return nil, fmt.Errorf("line 1: %w", err)
	}
	if p.About, err = h.about(); err != nil {
		return nil, fmt.Errorf("line 1: %w", err)
	}
	if p.Machine, err = control.New(p.Config); err != nil {
		return nil, fmt.Errorf("line 1: %w", err)
	}
	return p, nil
}

// Peek returns the event that Next would play. It returns false if the trace has ended or its next
// line is invalid.
func (p *Player) Peek() (control.Event, bool) {
	if err := p.look(); err != nil || p.ahead == nil {
		return control.Event{}, false
	}
	e, err := p.ahead.event()
	return e, err == nil
}

// Next plays one event. It returns false at the end of the trace. An error is a *DiffersError, or
// it names the invalid line.
func (p *Player) Next() (bool, error) {
	if err := p.look(); err != nil || p.ahead == nil {
		return false, err
	}
	l := p.ahead
	p.ahead = nil
	e, err := l.event()
	if err != nil {
		return false, fmt.Errorf("line %d: %w", p.line, err)
	}
	if l.Name != "" {
		p.Names[e.Lane] = l.Name
	}
	p.Event = e
	p.Commands = p.Machine.Step(e, p.Commands[:0])
	p.got = commandsOf(p.got, p.Commands)
	if !slices.Equal(p.got, l.Do) {
		return false, &DiffersError{Line: p.line, Got: text(p.got), Want: text(l.Do),
			About: p.About}
	}
	p.Events++
	return true, nil
}

// look reads the next line, unless it was read already.
func (p *Player) look() error {
	if p.ahead != nil || p.atEnd {
		return p.wrong
	}
	p.wrong = p.read()
	return p.wrong
}

func (p *Player) read() error {
	if !p.in.Scan() {
		p.atEnd = true
		return p.in.Err()
	}
	p.line++
	var l line
	if err := strict(p.in.Bytes(), &l); err != nil {
		p.atEnd = true
		if !p.in.Scan() && p.in.Err() == nil {
			p.Torn = true
			return nil
		}
		return fmt.Errorf("line %d: %w", p.line, err)
	}
	if l.Kind == endKind {
		p.atEnd, p.Ended = true, l.Why
		if p.in.Scan() {
			return fmt.Errorf("line %d is after the end of the trace", p.line+1)
		}
		return nil
	}
	p.ahead = &l
	return nil
}

// DiffersError describes the first event at which the machine's commands differ from the trace.
type DiffersError struct {
	Line      int
	Got, Want string // the commands, in the form of the trace
	About     About
}

// Error returns the line and both lists of commands.
func (e *DiffersError) Error() string {
	return fmt.Sprintf("line %d: flow control did %s, but the trace has %s", e.Line, e.Got, e.Want)
}

// Replayed is the result of a replay.
type Replayed struct {
	Events, Commands int
	Torn             bool   // see Player
	Ended            string // see Player
	Status           control.Status
}

// Replay plays a whole trace.
func Replay(r io.Reader) (Replayed, error) {
	p, err := NewPlayer(r)
	if err != nil {
		return Replayed{}, err
	}
	var done Replayed
	for {
		more, err := p.Next()
		done.Events = p.Events
		if err != nil {
			return done, err
		}
		if !more {
			done.Torn, done.Ended, done.Status = p.Torn, p.Ended, p.Machine.Status()
			return done, nil
		}
		done.Commands += len(p.Commands)
	}
}

func strict(text []byte, to any) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	return dec.Decode(to)
}

func text(c []command) string {
	if len(c) == 0 {
		return "nothing"
	}
	b, err := json.Marshal(c)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// OtherProgram returns a text to append to err, a *[DiffersError], if another program or platform
// may be the cause: the trace was written by another version than program, or on another
// architecture than arch. Otherwise it returns "".
func OtherProgram(err error, program, arch string) string {
	differs, ok := errors.AsType[*DiffersError](err)
	if !ok {
		return ""
	}
	switch a := differs.About; {
	case a.Arch != "" && a.Arch != arch:
		return fmt.Sprintf("; it was written on %s, and this is %s: a replay is exact only on "+
			"the same platform", a.Arch, arch)
	case a.Program != "" && a.Program != program:
		return fmt.Sprintf("; it was written by penstock %s, and this is %s: replay it with "+
			"that version", a.Program, program)
	}
	return ""
}
