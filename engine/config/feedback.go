package config

import (
	"fmt"

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

// feedback adds an error for each sink of p with an output file that the source reads.
func (l *loader) feedback(p *Pipeline) {
	if p.Source.Options == nil || l.set.right[p.Source.Options] == nil {
		return // the options are invalid
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
