package follow

import (
	"fmt"
	"hash/fnv"
)

// Input returns a hash for stream.InputReader. The hash covers the name, size, modification time
// and inode of each file that is to be read.
func Input(p Place) (uint64, error) {
	var sum uint64 // of the files' hashes, since a listing has no order
	err := p.List(func(f Listed) {
		h := fnv.New64a()
		fmt.Fprintf(h, "%q %d %d %d", f.Label, f.Info.Size, f.Info.ModTime.UnixNano(), f.Info.Ino)
		sum += h.Sum64()
	}, func(string, string) {})
	return sum, err
}
