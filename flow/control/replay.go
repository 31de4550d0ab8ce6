//penstock:pure

package control

// replay bounds the bytes that a crash repeats: bytes in flight, and bytes settled and not saved.
type replay struct {
	limit int64 // 0: there is no bound

	unsent  int64 // bytes of items never sent
	started int64 // bytes of items sent at least once and not settled
	unsaved int64 // bytes settled and not saved
	shut    bool  // the bound holds back an item since the last dispatch
}

// bytes returns the sum (unsent or started) in which an unsettled item is counted.
func (r *replay) bytes(it *item) *int64 {
	if it.counted {
		return &r.started
	}
	return &r.unsent
}

// add counts a new item.
func (r *replay) add(it *item) { *r.bytes(it) += it.bytes }

// remove stops counting an item that was withdrawn, replaced by its pieces, or deferred.
func (r *replay) remove(it *item) { *r.bytes(it) -= it.bytes }

// start notes that the item is sent for the first time.
func (r *replay) start(it *item) {
	r.remove(it)
	it.counted = true
	r.add(it)
}

// settle notes that the item is delivered or dead-lettered, and must be saved.
func (r *replay) settle(it *item) {
	r.remove(it)
	r.unsaved += it.bytes
}

// save notes that settled items with this number of bytes are in the checkpoint.
func (r *replay) save(bytes int64) { r.unsaved = max(0, r.unsaved-bytes) }

// full reports whether the bytes of all items, from Offer until they are saved, reach the bound.
func (r *replay) full() bool {
	return r.limit > 0 && r.unsent+r.started+r.unsaved >= r.limit
}

// forbids reports whether the bound keeps the item from being sent for the first time.
func (r *replay) forbids(it *item) bool {
	if it.counted || r.limit == 0 {
		return false
	}
	repeated := r.started + r.unsaved // by a crash now
	if repeated > 0 && repeated+it.bytes > r.limit {
		r.shut = true
	}
	return r.shut
}

// binds reports whether the bound holds back an item now.
func (r *replay) binds() bool { return r.shut || r.full() }
