package minheap_test

import (
	"container/heap"
	"slices"
	"testing"

	"github.com/penstock-io/penstock/internal/minheap"
)

type job struct{ due, index int }

func (j *job) Before(other *job) bool { return j.due < other.due }

func (j *job) SetIndex(i int) { j.index = i }

// TestHeap checks that elements come out in order, that each of them knows its index at all times,
// and that one of them can be removed by its index.
func TestHeap(t *testing.T) {
	var h minheap.Heap[*job]
	check := func() {
		t.Helper()
		for i, j := range h {
			if j.index != i {
				t.Errorf("the job due at %d has index %d, want %d", j.due, j.index, i)
			}
		}
	}
	jobs := make(map[int]*job)
	for _, due := range []int{5, 3, 9, 1, 7, 2, 8} {
		jobs[due] = &job{due: due}
		heap.Push(&h, jobs[due])
		check()
	}
	if heap.Remove(&h, jobs[7].index); jobs[7].index != -1 {
		t.Errorf("a removed job has index %d, want -1", jobs[7].index)
	}
	check()
	var got []int
	for h.Len() > 0 {
		got = append(got, heap.Pop(&h).(*job).due)
		check()
	}
	if want := []int{1, 2, 3, 5, 8, 9}; !slices.Equal(got, want) {
		t.Errorf("the jobs came out in the order %v, want %v", got, want)
	}
}
