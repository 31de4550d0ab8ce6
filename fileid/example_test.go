package fileid_test

import (
	"fmt"

	"github.com/penstock-io/penstock/fileid"
)

// A renamed file is still the known one, even after it has grown. Another file with a reused inode
// is not.
func Example() {
	first := fileid.File{Dev: 1, Ino: 70, Birth: 1_000_000_001, Size: 5, Head: []byte("one\n2")}
	known := fileid.New(first, nil)

	grown := first
	grown.Size, grown.Head = 8, []byte("one\n2nd\n")
	fmt.Println("grown:", known.Match(grown))

	reused := fileid.File{Dev: 1, Ino: 70, Birth: 2_000_000_002, Size: 4, Head: []byte("new\n")}
	fmt.Println("reused inode:", known.Match(reused))
	// Output:
	// grown: true
	// reused inode: false
}
