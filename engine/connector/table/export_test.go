package table

// ReadJournal reads the text of a journal, for fuzzing.
func ReadJournal(text []byte) {
	var m journalState
	m.seen.max = 100
	good, err := m.read(text, "t")
	if err == nil && good > int64(len(text)) {
		panic("more was read than there is")
	}
}
