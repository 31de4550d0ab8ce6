// Package vectors compares the policies of this project with golden vectors: waits and decisions
// recorded from the libraries that these policies imitate. Only tests import this package. It
// defines the form of the vectors, and which package tests which policy (table.go). It contains no
// policy. The vectors themselves are in the folder golden, with a README that describes their form.
package vectors

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// File has vectors of one library.
type File struct {
	Name     string `json:"-"` // base name of the file
	Form     int    `json:"form"`
	Library  string `json:"library"`
	Version  string `json:"version"`
	Language string `json:"language"`
	Cases    []Case `json:"cases"`
}

// Case is one setting of one policy with the library's waits or decisions.
type Case struct {
	Name      string     `json:"name"`
	Policy    string     `json:"policy"`
	Kind      string     `json:"kind"` // exact, random, decision, calls, support
	Params    Object     `json:"params"`
	ArgOffset int        `json:"arg_offset"` // the library's own argument is n + ArgOffset
	Quirk     string     `json:"quirk"`
	Note      string     `json:"note"`
	Wide      bool       `json:"wide"` // an integer of the case is outside int64, see Nanos
	FirstN    int        `json:"first_n"`
	Delays    []Nanos    `json:"delays_ns"`
	Points    []Point    `json:"points"`
	Ends      string     `json:"ends"` // continues, stop, error
	EndsHow   string     `json:"ends_how"`
	Error     string     `json:"error"`
	Sampling  string     `json:"sampling"` // independent, sequence
	Samples   int        `json:"samples"`
	Steps     []Step     `json:"steps"`
	Decisions []Decision `json:"decisions"`
	Calls     []Call     `json:"calls"`
}

// Point is the delay at step N. N may have a fraction, be huge, or not be finite.
type Point struct {
	N     Float  `json:"n"`
	Delay Nanos  `json:"delay_ns"`
	Error string `json:"error"`
}

// Step is the distribution of one step's delays. In a case with the Kind "support", all delays of
// the step are equally likely: Values, or Unit times each whole number from 0 to Last.
type Step struct {
	N         int              `json:"n"`
	Error     string           `json:"error"`
	Min       Nanos            `json:"min_ns"`
	Max       Nanos            `json:"max_ns"`
	Mean      Nanos            `json:"mean_ns"`
	Deviation Nanos            `json:"stddev_ns"`
	Quantiles map[string]Nanos `json:"quantiles_ns"`
	Atoms     []Atom           `json:"atoms"`
	Corr      *float64         `json:"corr_prev"`
	Values    []Nanos          `json:"values_ns"`
	Unit      Nanos            `json:"step_ns"`
	Last      int64            `json:"last"`
	State     Object           `json:"state"`
}

// Atom is a delay that many draws of the library have in common, with their share of all draws.
type Atom struct {
	Value Nanos   `json:"value_ns"`
	Share float64 `json:"share"`
}

// Decision is one decision of the library: the input, and the output for this input.
type Decision struct {
	Input  Object `json:"input"`
	Output Object `json:"output"`
}

// Call is one call on an object, with its result.
type Call struct {
	Call     string          `json:"call"`
	On       string          `json:"on"`
	Args     Object          `json:"args"`
	Result   json.RawMessage `json:"result"`
	ResultNs *Nanos          `json:"result_ns"`
}

// Nanos is a number of nanoseconds. A number beyond the range of int64 becomes the nearest int64.
type Nanos int64

// Duration returns n as a time.Duration.
func (n Nanos) Duration() time.Duration { return time.Duration(n) }

// UnmarshalJSON implements json.Unmarshaler.
func (n *Nanos) UnmarshalJSON(text []byte) error {
	i, ok := new(big.Int).SetString(string(text), 10)
	if !ok {
		r, ok := new(big.Rat).SetString(string(text)) // 1e9, 2.0
		if !ok || !r.IsInt() {
			return fmt.Errorf("%s is no whole number of nanoseconds", text)
		}
		i = r.Num()
	}
	switch {
	case i.IsInt64():
		*n = Nanos(i.Int64())
	case i.Sign() < 0:
		*n = math.MinInt64
	default:
		*n = math.MaxInt64
	}
	return nil
}

// Float is a float64 that may be written as "NaN", "+Inf" or "-Inf".
type Float float64

// UnmarshalJSON implements json.Unmarshaler.
func (f *Float) UnmarshalJSON(text []byte) error {
	x, err := strconv.ParseFloat(string(bytes.Trim(text, `"`)), 64)
	*f = Float(x)
	return err
}

// Load reads every file *.json in dir. It does not read the folders of dir.
func Load(dir string) ([]File, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no vectors: no *.json in %q", dir)
	}
	var files []File
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		f := File{Name: filepath.Base(path)}
		if err := json.Unmarshal(data, &f); err != nil {
			return nil, fmt.Errorf("vectors %q: %w", path, err)
		}
		if f.Form != 1 {
			return nil, fmt.Errorf("vectors %q: form %d, want 1", path, f.Form)
		}
		files = append(files, f)
	}
	return files, nil
}

// Rand is the source of random numbers for a draw.
type Rand = rand.Source
