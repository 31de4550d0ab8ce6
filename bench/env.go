package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock-io/penstock/bench/load"
	"github.com/penstock-io/penstock/bench/proc"
	"github.com/penstock-io/penstock/bench/rival"
)

// env is the state of one run of this command: its options, scratch folder and inputs.
type env struct {
	options
	blocks map[load.Kind]*load.Block
	live   *load.Block
	inputs map[string]load.Input
	// server is nil if none was started. A signal stops the server, even while it is starting.
	server  atomic.Pointer[server]
	ledgers int
	startup float64 // CPU seconds of a run with one line of input; 0 if not measured
	lastCPU float64 // CPU seconds of the last run
	found   []rival.Program
	absent  []rival.Program
	notes   []string // notes about the running workload
	begun   time.Time
	until   time.Time // time limit of the running workload; zero means none
}

func newEnv(o options) (*env, error) {
	e := &env{options: o, begun: time.Now(), blocks: map[load.Kind]*load.Block{},
		inputs: map[string]load.Input{}}
	var err error
	if e.penstock, err = filepath.Abs(e.penstock); err != nil {
		return nil, err
	}
	if err := e.findRivals(); err != nil {
		return nil, err
	}
	if _, err := exec.LookPath(e.penstock); err != nil {
		return nil, fmt.Errorf("-penstock: %w; make build makes it", err)
	}
	e.dir, err = os.MkdirTemp(o.dir, "penstock-bench-")
	e.closeOnSignal()
	return e, err
}

// closeOnSignal starts a goroutine that calls the same cleanup as close when a signal arrives.
func (e *env) closeOnSignal() {
	told := make(chan os.Signal, 1)
	signal.Notify(told, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-told
		proc.KillAll()
		exit(errors.Join(errors.New("interrupted"), e.cleanUp()))
	}()
}

// close stops the database server, if there is one, and removes the scratch folder. After a signal,
// the goroutine of closeOnSignal does this and ends the process. In this case close never returns.
// So the errors of the interrupted workload are not reported.
func (e *env) close() error {
	if proc.Ending() {
		select {}
	}
	return e.cleanUp()
}

// removals is the maximum number of attempts to remove the scratch folder. An attempt may fail,
// because an interrupted workload may still be creating files.
const removals = 5

func (e *env) cleanUp() (err error) {
	if s := e.server.Load(); s != nil {
		err = s.stop()
	}
	var kept error
	for range removals {
		if kept = os.RemoveAll(e.dir); kept == nil {
			break
		}
	}
	return errors.Join(err, kept)
}

// note adds a note about the running workload, unless it has this note already.
func (e *env) note(text string) {
	for _, had := range e.notes {
		if had == text {
			return
		}
	}
	e.notes = append(e.notes, text)
}

// takeNotes returns the notes and clears them.
func (e *env) takeNotes() string {
	text := strings.Join(e.notes, "; ")
	e.notes = nil
	return text
}

func (e *env) block(kind load.Kind) (*load.Block, error) {
	if b := e.blocks[kind]; b != nil {
		return b, nil
	}
	b, err := load.NewBlock(e.penstock, kind, false)
	if err == nil {
		e.blocks[kind] = b
	}
	return b, err
}

// timed returns a block of access log lines that contain the time of writing.
func (e *env) timed() (*load.Block, error) {
	if e.live != nil {
		return e.live, nil
	}
	b, err := load.NewBlock(e.penstock, load.Combined, true)
	if err == nil {
		e.live = b
	}
	return b, err
}

// input returns a file of numbered lines. It creates the file once for each kind and size.
func (e *env) input(kind load.Kind, size int64) (load.Input, error) {
	name := fmt.Sprintf("%s-%d", kind, size)
	if in, ok := e.inputs[name]; ok {
		return in, nil
	}
	b, err := e.block(kind)
	if err != nil {
		return load.Input{}, err
	}
	in, err := b.Write(filepath.Join(e.dir, "input", name+".log"), kind, size)
	if err == nil {
		e.inputs[name] = in
	}
	return in, err
}

// inputOf returns a file with about the given number of access log lines.
func (e *env) inputOf(records int64) (load.Input, error) {
	b, err := e.block(load.Combined)
	if err != nil {
		return load.Input{}, err
	}
	return e.input(load.Combined, records*b.Bytes()/int64(b.Lines()))
}
