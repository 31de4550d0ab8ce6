//penstock:pure

package flume

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/penstock-io/penstock/wire"
)

const (
	avroMagic = "Obj\x01"
	avroSync  = 16 // length of the marker at the end of each block
)

// spoolPosition returns the position that a spooldir source has stored in the file
// .flumespool-main.meta, an Avro data file with the contents b. Its metadata has the path of the
// spooled file under the key "file". Each of its records has one field, the long offset, and the
// last record has the present position. The first incomplete block, and everything after it, is
// ignored.
func spoolPosition(b []byte) (file string, offset int64, err error) {
	rest, ok := bytes.CutPrefix(b, []byte(avroMagic))
	if !ok {
		return "", 0, errors.New("it is not an Avro data file")
	}
	r := avroReader{wire.Reader{Rest: rest}}
	for n := r.Varint(); n != 0 && !r.Bad; n = r.Varint() {
		if n < 0 { // the size of the map's block follows
			n = -n
			r.Varint()
		}
		for range n {
			key, value := r.text(), r.text()
			switch {
			case r.Bad:
				return "", 0, errors.New("its header is incomplete")
			case key == "file":
				file = value
			case key == "avro.codec" && value != "null":
				return "", 0, fmt.Errorf("it is compressed (%s), which Flume never does", value)
			}
		}
	}
	marker := r.Take(avroSync)
	if r.Bad || file == "" {
		return "", 0, errors.New("its header is incomplete, or has no file name")
	}
	for len(r.Rest) > 0 {
		n, data := r.Varint(), avroReader{wire.Reader{Rest: r.Take(uint64(r.Varint()))}}
		if end := r.Take(avroSync); r.Bad || !bytes.Equal(end, marker) {
			break // an incomplete write, so the blocks before it are valid
		}
		for ; n > 0 && len(data.Rest) > 0; n-- {
			if at := data.Varint(); !data.Bad {
				offset = at
			}
		}
	}
	if offset < 0 {
		return "", 0, fmt.Errorf("its offset is %d", offset)
	}
	return file, offset, nil
}

// avroReader reads Avro's binary encoding.
type avroReader struct{ wire.Reader }

// text reads a string. A negative length is converted to a very large one, which is an error.
func (r *avroReader) text() string { return string(r.Take(uint64(r.Varint()))) }
