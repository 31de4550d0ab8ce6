//penstock:pure

package flume

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	avroMagic = "Obj\x01"
	avroSync  = 16 // bytes of the marker behind each block
)

// spoolPosition reads the file in which a spooldir source keeps how far it has come in the file that it is in the middle of
// (.flumespool-main.meta): an Avro data file of records with one long, offset, of which the last counts, and with the path
// of the spooled file under the key "file" of its metadata. A block that was torn off at the end is left out.
func spoolPosition(b []byte) (file string, offset int64, err error) {
	rest, ok := bytes.CutPrefix(b, []byte(avroMagic))
	if !ok {
		return "", 0, errors.New("it is no Avro data file")
	}
	r := avroReader{b: rest}
	for n := r.long(); n != 0 && !r.bad; n = r.long() {
		if n < 0 { // then the size of the map's block follows
			n = -n
			r.long()
		}
		for range n {
			key, value := r.text(), r.text()
			switch {
			case r.bad:
				return "", 0, errors.New("its head is torn")
			case key == "file":
				file = value
			case key == "avro.codec" && value != "null":
				return "", 0, fmt.Errorf("it is compressed (%s), as Flume never writes it", value)
			}
		}
	}
	marker := r.take(avroSync)
	if r.bad || file == "" {
		return "", 0, errors.New("its head is torn, or names no file")
	}
	for len(r.b) > 0 {
		n, data := r.long(), avroReader{b: r.take(r.long())}
		if end := r.take(avroSync); r.bad || !bytes.Equal(end, marker) {
			break // torn while it was written: what stands before counts
		}
		for range n {
			if at := data.long(); !data.bad {
				offset = at
			}
		}
	}
	if offset < 0 {
		return "", 0, fmt.Errorf("its offset is %d", offset)
	}
	return file, offset, nil
}

// avroReader takes Avro's binary form apart. Once bad it yields zeros.
type avroReader struct {
	b   []byte
	bad bool
}

func (r *avroReader) long() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *avroReader) take(n int64) []byte {
	if n < 0 || n > int64(len(r.b)) {
		r.bad, r.b = true, nil
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *avroReader) text() string { return string(r.take(r.long())) }
