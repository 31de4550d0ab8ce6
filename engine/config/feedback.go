package config

import (
	"fmt"
	"path/filepath"

	"github.com/penstock-io/penstock/stream"
)

// feedback returns an error if the source reads the output file of the sink. Each delivered record
// would then be read again, without end.
func feedback(source, sink Use) error {
	reader, reads := source.Options.(stream.FileReader)
	writer, writes := sink.Options.(stream.FileWriter)
	if !reads || !writes || !reader.ReadsFile(writer.WritesFile()) {
		return nil
	}
	return &stream.OptionError{Key: "path", Err: fmt.Errorf("the source of the same pipeline "+
		"reads %s, so that each record would be delivered again and again; write the file to "+
		"another folder, or exclude it from the source", writer.WritesFile())}
}

// stateFiles are the names of files that a running engine has in its state directory.
var stateFiles = []string{"checkpoint.log", "penstock.lock"}

// readsState returns an error if the source reads files of the state directory. Each delivered
// batch changes the checkpoint, which would then be read again, without end. A source that renames
// its files would even rename the lock file, so that two processes could use the directory.
func readsState(source Use, state string) error {
	reader, reads := source.Options.(stream.FileReader)
	for _, name := range stateFiles {
		if file := filepath.Join(state, name); reads && reader.ReadsFile(file) {
			return &stream.OptionError{Err: fmt.Errorf("it would read %s, a file of the state "+
				"directory; set `state:` to another directory, or exclude the file", file)}
		}
	}
	return nil
}

// feedback adds an error if the source of p reads the state directory, and for each sink of p with
// an output file that the source reads.
func (l *loader) feedback(p *Pipeline) {
	if p.Source.Options == nil || l.set.right[p.Source.Options] == nil {
		return // the options are invalid
	}
	if err := readsState(p.Source, l.set.f.State); err != nil {
		l.set.right[p.Source.Options](err)
	}
	for i := range p.Routes {
		for _, u := range p.Routes[i].Sink.ends() {
			if refused := l.set.right[u.Options]; refused != nil {
				if err := feedback(p.Source, u); err != nil {
					refused(err)
				}
			}
		}
	}
}
