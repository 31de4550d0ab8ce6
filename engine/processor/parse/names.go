//penstock:pure

package parse

import "github.com/penstock-io/penstock/stream"

// maxNames bounds the keys that an instance caches. If there are more, the cache is cleared at the
// next batch.
const maxNames = 10_000

// names finds the index of a key in Batch.Names. Most records of a stream have the same keys in the
// same order, so it first tries the key that followed the previous key last time. Between batches
// it keeps only memory for reuse. The zero value is ready for begin.
type names struct {
	all   []name // the first entry is the start of a record
	known map[string]uint32
	batch uint64 // number of batches
}

type name struct {
	text  string
	next  uint32 // index of the key that followed, in names.all
	batch uint64 // the batch for which place is valid
	place uint32 // index in Batch.Names
	turn  uint64 // the last record that had the key
	field uint32 // its index in that record
}

func (n *names) begin(b *stream.Batch) {
	if len(n.all) == 0 || len(n.all) > maxNames {
		n.all, n.known = []name{{}}, map[string]uint32{}
	}
	n.batch++
	for i, text := range b.Names { // names added by earlier processors
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

// find returns the index in n.all of a key that follows the key at index last. last is 0 for the
// first key of a record.
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
