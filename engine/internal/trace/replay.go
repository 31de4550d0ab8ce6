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

// maxLine is the maximum length of a line of a trace.
const maxLine = 16 << 20

// Player replays a trace on a new control.Machine. It compares each command of the machine with the
// trace. It is not safe for concurrent use.
type Player struct {
	About   About
	Config  control.Config
	Machine *control.Machine // its state after Event
	// Names are the names of the lanes that the trace contains so far, by lane number. A lane is
	// the place of a worker in the sender. A lane that was removed keeps its name.
	Names    map[int32]string
	Event    control.Event     // the last event that was replayed
	Commands []control.Command // commands that it caused
	Events   int               // number of replayed events
	// Torn means that the last line is incomplete. The writer was killed or is still writing.
	Torn  bool
	Ended string // why the trace has ended; "" if it does not say

	in    *bufio.Scanner
	line  int
	ahead *line // event in the next line
	got   []command
	atEnd bool
	wrong error // error in the next line; look returns it again
}

// NewPlayer reads the first line. It returns an error if this line is invalid.
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

// Peek returns the event that Next will replay. It returns false if there is no further event, or
// the next line is invalid.
func (p *Player) Peek() (control.Event, bool) {
	if err := p.look(); err != nil || p.ahead == nil {
		return control.Event{}, false
	}
	e, err := p.ahead.event()
	return e, err == nil
}

// Next replays one event. It returns false at the end of the trace. If the commands differ from the
// trace, the error is a *DiffersError. An error for an invalid line contains the number of the
// line.
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

// look reads the next line, unless it has already read it.
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

// DiffersError means that the machine's commands for an event differ from those in the trace.
type DiffersError struct {
	Line      int
	Got, Want string // commands of the machine and of the trace, in the form of the trace
	About     About
}

// Error returns the line and both lists of commands.
func (e *DiffersError) Error() string {
	return fmt.Sprintf("line %d: flow control did %s, but the trace has %s", e.Line, e.Got, e.Want)
}

// Replayed is the result of Replay.
type Replayed struct {
	Events, Commands int
	Torn             bool   // see Player
	Ended            string // see Player
	Status           control.Status
}

// Replay replays a whole trace. It returns an error at the first difference.
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

// OtherProgram explains why a replay may differ from its trace: a program of another version or
// architecture has written the trace. The parameters program and arch are the version and the
// architecture of this program. If err is a *[DiffersError], and the trace names another version or
// architecture, OtherProgram returns a text to append to err. Otherwise it returns "".
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
