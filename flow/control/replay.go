//penstock:pure

package control

// replay bounds the bytes that a crash repeats: those in flight, and those settled and not saved.
type replay struct {
	most int64 // 0: there is no bound

	unsent  int64 // bytes of items never sent
	started int64 // sent at least once and not settled
	unsaved int64 // settled and not saved
	shut    bool  // it holds the next item back
}

// bytes returns the sum to which an unsettled item belongs.
func (r *replay) bytes(it *item) *int64 {
	if it.counted {
		return &r.started
	}
	return &r.unsent
}

// add takes in a new item.
func (r *replay) add(it *item) { *r.bytes(it) += it.bytes }

// remove takes in that it is gone: settled undelivered, replaced by its pieces, or deferred.
func (r *replay) remove(it *item) { *r.bytes(it) -= it.bytes }

// start takes in that it is sent for the first time.
func (r *replay) start(it *item) {
	r.remove(it)
	it.counted = true
	r.add(it)
}

// settle takes in that it is delivered or buried, and is to be saved.
func (r *replay) settle(it *item) {
	r.remove(it)
	r.unsaved += it.bytes
}

// save takes in that so many bytes are in the checkpoint.
func (r *replay) save(bytes int64) { r.unsaved = max(0, r.unsaved-bytes) }

// full reports whether the offered and not yet saved bytes reach the bound.
func (r *replay) full() bool {
	held := r.unsent + r.started + r.unsaved
	return r.most > 0 && held > 0 && held >= r.most
}

// holds reports whether the bound keeps it from being sent for the first time.
func (r *replay) holds(it *item) bool {
	if it.counted || r.most == 0 {
		return false
	}
	held := r.started + r.unsaved
	if held > 0 && held+it.bytes > r.most {
		r.shut = true
	}
	return r.shut
}

// binds reports whether the bound keeps an item back now.
func (r *replay) binds() bool {
	held := r.unsent + r.started + r.unsaved
	return r.most > 0 && held > 0 && r.shut || r.full()
}
