package vfs

import "fmt"

// WriteParts writes parts one behind the other, as one Write of them all would, and keeps none of them. Where the system
// gathers (writev of Linux) nothing is copied; elsewhere they are joined first. After an error an unknown number of their
// bytes is written. It is not safe for concurrent use with other writes to f.
func WriteParts(f File, parts [][]byte) error {
	if real, ok := f.(*osFile); ok {
		if gathered, err := gather(real, parts); gathered || err != nil {
			return err
		}
	}
	if len(parts) == 1 {
		return write(f, parts[0])
	}
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	joined := make([]byte, 0, size)
	for _, p := range parts {
		joined = append(joined, p...)
	}
	return write(f, joined)
}

func write(f File, p []byte) error {
	n, err := f.Write(p)
	if err == nil && n < len(p) {
		return fmt.Errorf("write %d bytes: only %d were taken", len(p), n)
	}
	return err
}
