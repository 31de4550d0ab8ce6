package wire_test

import (
	"encoding/binary"
	"fmt"

	"github.com/penstock-io/penstock/wire"
)

// An entry of a state file has a name and a size. The reader refuses an entry that was torn by a
// crash.
func Example() {
	entry := binary.AppendUvarint(nil, uint64(len("orders")))
	entry = append(entry, "orders"...)
	entry = binary.AppendUvarint(entry, 1200)

	for _, stored := range [][]byte{entry, entry[:len(entry)-1]} {
		r := wire.Reader{Rest: stored}
		name, size := r.Text(), r.Uvarint()
		if !r.Done() {
			fmt.Println("damaged")
			continue
		}
		fmt.Println(name, size)
	}
	// Output:
	// orders 1200
	// damaged
}
