//penstock:pure

package parse

import "github.com/penstock-io/penstock/stream"

// maxNames is the number of cached keys above which an instance clears its cache at the next batch.
const maxNames = 10_000

// names finds the index of a key in Batch.Names. Most records have the same keys in the same order.
// So names first tries the key that followed the previous key in an earlier record. The zero value
// is ready for begin.
type names struct {
	all   []name // the first entry stands for the start of a record
	known map[string]uint32
	batch uint64 // number of batches
}

type name struct {
	text  string
	next  uint32 // index in names.all of the key that came next
	batch uint64 // the batch for which place is valid
	place uint32 // index in Batch.Names
	turn  uint64 // the last record that had the key
	field uint32 // index of its field in this record
}

func (n *names) begin(b *stream.Batch) {
	if len(n.all) == 0 || len(n.all) > maxNames {
		n.all, n.known = []name{{}}, map[string]uint32{}
	}
	n.batch++
	for i, text := range b.Names { // names that earlier processors have added
		at, ok := n.known[text]
		if !ok {
			at = n.learn(text)
		}
		n.all[at].batch, n.all[at].place = n.batch, uint32(i)
	}
}

func (n *names) learn(text string) uint32 {
	at := uint32(len(n.all))
	n.all = append(n.all, name{text: text})
	n.known[text] = at
	return at
}

// find returns the index in n.all of key, and adds the key to b.Names if it is missing there. last
// is the index in n.all of the previous key of the record, or 0 if there is none.
func (n *names) find(b *stream.Batch, last uint32, key []byte) uint32 {
	at := n.all[last].next
	if at == 0 || n.all[at].text != string(key) {
		var ok bool
		if at, ok = n.known[string(key)]; !ok {
			at = n.learn(string(key))
		}
		n.all[last].next = at
	}
	if e := &n.all[at]; e.batch != n.batch {
		b.Names = append(b.Names, e.text)
		e.batch, e.place = n.batch, uint32(len(b.Names)-1)
	}
	return at
}
