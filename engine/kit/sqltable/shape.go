package sqltable

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/penstock-io/penstock/stream"
)

// Shape determines the columns of a sink's table. If the table exists, Found selects them from the
// table's columns. Otherwise the columns are those listed in the config. If none are listed, they
// are inferred from the first batch. For a new table, Made adds the key and the JSON column. A
// Shape is safe for concurrent use.
type Shape struct {
	Name Name // of the table

	dialect *Dialect
	options *Options

	table atomic.Pointer[Table] // nil until determined
	mu    sync.Mutex            // serializes the determination
}

// NewShape returns a shape without columns. The options must be valid.
func NewShape(d *Dialect, o *Options) *Shape {
	name, _ := ParseName(o.Table, d.Schemas) // Validate reports the error
	return &Shape{Name: name, dialect: d, options: o}
}

// For returns the table. If its columns are not known yet, For infers them from b. The caller must
// have called b.Split.
func (s *Shape) For(b *stream.Batch) *Table {
	if t := s.table.Load(); t != nil {
		return t
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.table.Load() == nil {
		s.settle(Made(s.dialect, Infer(s.dialect, b), s.options))
	}
	return s.table.Load()
}

// Known returns the table, or nil if its columns are not known yet.
func (s *Shape) Known() *Table { return s.table.Load() }

// settle sets the table. filled has the names of columns that the database fills.
func (s *Shape) settle(columns []Column, filled ...string) {
	t := NewTable(s.dialect, columns, s.options.JSONColumn, s.options.Policy())
	t.filled = filled
	for _, k := range s.options.Key {
		t.Required = append(t.Required, IndexOf(columns, k))
	}
	s.table.Store(t)
}

// Found sets the columns to fill, and reports whether the table exists. there has the columns of
// the existing table. It is empty if there is no table.
//
//   - Without a table, Found uses the columns listed in the config, and those that Made adds. If
//     none are listed, Found sets nothing, and For infers the columns later.
//   - With a table and listed columns, Found uses the listed columns, and the JSON column if the
//     table has it and the policy needs it.
//   - With a table and no listed columns, Found uses the columns of the key, and those for
//     which Own is not set.
//
// Found returns an error if the table lacks a listed column, if a key column is not among the
// columns to fill, or if there are none to fill.
func (s *Shape) Found(there []Column) (exists bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	listed := s.options.Listed(s.dialect)
	if len(there) == 0 {
		if len(listed) > 0 {
			s.settle(Made(s.dialect, listed, s.options))
		}
		return false, nil
	}
	var columns []Column
	var filled []string
	for _, l := range listed {
		i := IndexOf(there, l.Name)
		if i < 0 {
			return true, fmt.Errorf("the table %s has no column %q; add it to the table, or "+
				"remove it from `columns`", s.Name, l.Name)
		}
		column := there[i]
		column.Nested = l.Nested
		columns = append(columns, column)
	}
	if len(listed) == 0 {
		for _, c := range there {
			if c.Own && !slices.Contains(s.options.Key, c.Name) {
				filled = append(filled, c.Name)
			} else {
				columns = append(columns, c)
			}
		}
	} else if s.options.Policy() == JSONColumn {
		if i := IndexOf(there, s.options.JSONColumn); i >= 0 {
			columns = append(columns, there[i])
		}
	}
	for _, k := range s.options.Key {
		if IndexOf(columns, k) < 0 {
			return true, fmt.Errorf("the table %s has no column %q, which is in `key`",
				s.Name, k)
		}
	}
	if len(columns) == 0 {
		return true, fmt.Errorf("all columns of the table %s have defaults; list the `columns` "+
			"to fill", s.Name)
	}
	s.settle(columns, filled...)
	return true, nil
}

var errNoJSONColumn = errors.New("add it to the table, list the wanted `columns`, or set " +
	"`on_new_field` to ignore or dead_letter")

// Unfit returns an error if one of the refusals counts as a fault of the table, and not of the
// record: the policy stores values in the JSON column, and the table has no such column. If Unfit
// returns nil, the caller refuses the records.
func (s *Shape) Unfit(refusals ...Refusal) error {
	for _, f := range refusals {
		if f.NeedsExtra {
			return fmt.Errorf("%s, and the table %s has no column %q for it: %w", f.Reason, s.Name,
				s.options.JSONColumn, errNoJSONColumn)
		}
	}
	return nil
}
