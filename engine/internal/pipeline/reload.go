package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-io/penstock/engine/status"
	"github.com/penstock-io/penstock/stream"
)

// errNoLoader is returned by Reload if Options.Load is nil.
var errNoLoader = errors.New("this program cannot load its configuration again: restart it to change the configuration")

// Reload loads the configuration and applies it: see engine.Engine.Reload.
func (e *Engine) Reload(ctx context.Context) error {
	e.reload.Lock()
	defer e.reload.Unlock()
	begun := time.Now()
	err := e.loadAndApply(ctx)
	result := status.Reload{
		Count: 1, At: begun.UTC(), Seconds: time.Since(begun).Seconds(), OK: err == nil,
	}
	if err != nil {
		result.Error = stream.MaskURLs(err.Error())
		e.o.Log.Error("configuration not reloaded", "error", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.reloaded != nil {
		result.Count += e.reloaded.Count
		result.Failed += e.reloaded.Failed
	}
	if err != nil {
		result.Failed++
	}
	e.reloaded = &result
	return err
}

func (e *Engine) loadAndApply(ctx context.Context) error {
	if e.o.Load == nil {
		return errNoLoader
	}
	c, err := e.o.Load()
	if err != nil {
		return err
	}
	if err := c.Validate(); err != nil {
		return err
	}
	if err := e.Apply(ctx, c); err != nil {
		return fmt.Errorf("apply the configuration: %w", err)
	}
	return nil
}

// lastReload returns the result of the last Reload, or nil if there was none.
func (e *Engine) lastReload() *status.Reload {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.reloaded
}
