package waiting

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/penstock-io/penstock/engine/internal/framelog"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
	"github.com/penstock-io/penstock/wire"
)

const (
	fileMode    = 0o600
	segmentSize = 4 << 20 // size in bytes at which the next segment begins
	// maxSmall is the maximum number of segments if they are small on average. If there are more,
	// the oldest ones are joined with the last one. The first write of each run begins a segment.
	maxSmall = 8
)

func segmentName(n uint64) string { return fmt.Sprintf("waiting-%08d.log", n) }

// journal stores the changes of the index in numbered files, the segments. Changes are appended to
// the last segment, so a save writes only the changes. Each segment has its own numbers of
// partitions.
//
// Over time, more and more entries in the segments are removed ones. If the files are much larger
// than the live entries need, the live entries of the oldest segment are appended to the last one,
// and the oldest segment is removed. This limits the total size of the files to about twice the
// size of the live entries, plus two segments.
type journal struct {
	dir      vfs.Dir
	segments []uint64 // ascending; the last one is open for writing, if f is set
	sizes    []int64
	f        vfs.File
	size     int64
	numbers  map[uint32]uint32 // partition number in the index -> number in the segment
	named    uint32            // number of partitions that the segment has defined
	boot     string            // last boot id written to the segment
	sums     framelog.Summer
	unsynced bool
	failed   error // error after which the contents of the disk are unknown

	waits, waitBytes int64 // number and size of the records of waits, for an average
}

func (j *journal) path(n uint64) string { return filepath.Join(j.dir.Path(), segmentName(n)) }

// begin starts a new segment.
func (j *journal) begin() error {
	if err := j.sync(); err != nil {
		return err
	}
	n := uint64(1)
	if len(j.segments) > 0 {
		n = j.segments[len(j.segments)-1] + 1
	}
	f, err := j.dir.OpenFile(segmentName(n), os.O_RDWR|os.O_CREATE|os.O_EXCL|os.O_APPEND, fileMode)
	if err != nil {
		return fmt.Errorf("begin %s: %w", j.path(n), err)
	}
	head := framelog.AppendHeader(nil, magic, version, n)
	_, err = f.Write(head)
	if err == nil { // before any range depends on the segment or its name
		err = errors.Join(f.Sync(), j.dir.Sync())
	}
	if err != nil {
		return errors.Join(fmt.Errorf("begin %s: %w", j.path(n), err), f.Close(),
			j.dir.Remove(segmentName(n)))
	}
	if j.f != nil {
		if err := j.f.Close(); err != nil {
			return errors.Join(fmt.Errorf("close %s: %w", j.path(n-1), err), f.Close(),
				j.dir.Remove(segmentName(n)))
		}
	}
	j.segments, j.sizes = append(j.segments, n), append(j.sizes, int64(len(head)))
	j.f, j.size, j.numbers, j.named, j.boot = f, int64(len(head)), make(map[uint32]uint32), 0, ""
	return nil
}

// ready makes sure that the last segment is open for writing.
func (j *journal) ready() error {
	switch {
	case j.failed != nil:
		return j.failed
	case j.f == nil || j.size >= segmentSize:
		return j.begin()
	}
	return nil
}

// write appends one frame to the last segment.
func (j *journal) write(frame []byte) error {
	n := j.segments[len(j.segments)-1]
	if err := j.sums.Seal(frame, n, j.size); err != nil {
		return err
	}
	_, err := j.f.Write(frame)
	if err == nil {
		j.size += int64(len(frame))
		j.sizes[len(j.sizes)-1] = j.size
		j.unsynced = true
		return nil
	}
	j.unsynced = true // begin syncs the truncation: only the last segment may have a partial entry
	if cut := j.f.Truncate(j.size); cut != nil {
		j.failed = fmt.Errorf("%w; and its partial entry could not be removed: %w", err, cut)
	}
	j.numbers, j.boot = nil, "" // the failed frame may have defined partitions or a boot
	if j.failed == nil {
		j.size = segmentSize // so that the next write begins a new segment
		j.sizes[len(j.sizes)-1] = segmentSize
	}
	return fmt.Errorf("write %s: %w", j.path(n), err)
}

// sync makes written data durable.
func (j *journal) sync() error {
	if j.failed != nil {
		return j.failed
	}
	if j.f == nil || !j.unsynced {
		return nil
	}
	if err := j.f.Sync(); err != nil {
		j.failed = fmt.Errorf("sync %s: %w", j.path(j.segments[len(j.segments)-1]), err)
		return j.failed
	}
	j.unsynced = false
	return nil
}

func (j *journal) total() (bytes int64) {
	for _, n := range j.sizes {
		bytes += n
	}
	return bytes
}

// wasteful reports whether the files are much larger than needed for the waiting entries, or there
// are many small files.
func (j *journal) wasteful(entries int64) bool {
	each := int64(64)
	if j.waits > 0 {
		each = j.waitBytes / j.waits
	}
	n, total := int64(len(j.segments)), j.total()
	if n > maxSmall && total < n*segmentSize/2 {
		return true
	}
	return n > 1 && total > 2*entries*each+2*segmentSize
}

// dropOldest removes the oldest segment, and makes the removal durable before the next segment can
// be removed. Otherwise a power loss could bring this segment back without the next one. A range in
// it would then wait again, although the next segment had the record that it no longer waits.
func (j *journal) dropOldest() error {
	if err := j.dir.Remove(segmentName(j.segments[0])); err != nil {
		return fmt.Errorf("remove %s: %w", j.path(j.segments[0]), err)
	}
	j.segments, j.sizes = slices.Delete(j.segments, 0, 1), slices.Delete(j.sizes, 0, 1)
	if err := j.dir.Sync(); err != nil {
		j.failed = fmt.Errorf("sync %s: %w", j.dir.Path(), err)
	}
	return j.failed
}

// close closes the file.
func (j *journal) close() error {
	if j.f == nil {
		return nil
	}
	err := j.f.Close()
	j.f = nil
	return err
}

// list finds the numbers of the segments in the directory.
func (j *journal) list() error {
	entries, err := j.dir.Entries(".")
	if err != nil {
		return fmt.Errorf("list %s: %w", j.dir.Path(), err)
	}
	for _, e := range entries {
		var n uint64
		if _, err := fmt.Sscanf(e.Name, "waiting-%d.log", &n); err == nil &&
			e.Name == segmentName(n) {
			j.segments = append(j.segments, n)
		}
	}
	slices.Sort(j.segments)
	j.sizes = make([]int64, len(j.segments))
	return nil
}

// checkGaps returns an error if a segment is missing between two others. Only the oldest segment is
// ever removed, so the numbers are consecutive.
func (j *journal) checkGaps() error {
	for i, n := range j.segments {
		if i > 0 && n != j.segments[i-1]+1 {
			return fmt.Errorf("%s is missing", j.path(n-1))
		}
	}
	return nil
}

// read calls apply for each record of the i-th segment. It also passes to apply the partitions
// (parts) that the segment has defined so far. A crash may leave an unfinished frame at the end of
// the last segment. read then cuts off this frame. It also makes the last segment durable.
func (j *journal) read(i int, apply func(r *record, parts []stream.Partition) error) error {
	n, last := j.segments[i], i == len(j.segments)-1
	f, err := j.dir.OpenFile(segmentName(n), os.O_RDWR, fileMode)
	if err != nil {
		return fmt.Errorf("open %s: %w", j.path(n), err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	good, bad, err := j.frames(f, info.Size, n, apply)
	j.sizes[i] = good
	_, torn := bad.(*framelog.FrameError)
	if err = cmp.Or(err, bad); err != nil && (!torn || !last) {
		return fmt.Errorf("%s: byte %d: %w", j.path(n), good, err)
	}
	if torn {
		if follows, err := j.sums.Follows(f, n, info.Size, good); err != nil || follows {
			damage := fmt.Errorf("%s is damaged at byte %d: %w", j.path(n), good, bad)
			return errors.Join(damage, err)
		}
		if good < framelog.HeaderSize { // a crash occurred before the header was complete
			j.segments, j.sizes = j.segments[:i], j.sizes[:i]
			return j.dir.Remove(segmentName(n))
		}
		if err := f.Truncate(good); err != nil {
			return fmt.Errorf("remove the unfinished end of %s: %w", j.path(n), err)
		}
	}
	if !last {
		return nil
	}
	if err := f.Sync(); err != nil { // a killed process may not have synced its last entries
		return fmt.Errorf("sync %s: %w", j.path(n), err)
	}
	return nil
}

// frames calls apply for each record of a segment. bad is the error of the frame at the offset
// good, or nil if all frames are intact.
func (j *journal) frames(f vfs.File, size int64, segment uint64,
	apply func(*record, []stream.Partition) error) (good int64, bad, err error) {
	head := make([]byte, min(size, framelog.HeaderSize))
	in := bufio.NewReader(io.NewSectionReader(f, 0, size))
	if _, err := io.ReadFull(in, head); err != nil {
		return 0, nil, err
	}
	if size < framelog.HeaderSize {
		return 0, framelog.ErrShort, nil
	}
	if err := checkHeader(head, segment); err != nil {
		if _, bad := err.(*framelog.FrameError); bad && size == framelog.HeaderSize {
			return 0, err, nil // a crash before the header was durable: no frame follows
		}
		return 0, nil, err
	}
	var parts []stream.Partition
	return j.sums.Read(in, segment, size, func(payload []byte, _ int64) error {
		for c := (&reader{wire.Reader{Rest: payload}}); len(c.Rest) > 0; {
			r, err := c.next(len(parts))
			if err != nil {
				return err
			}
			if r.kind == kindPart {
				parts = append(parts, r.part)
			}
			if err := apply(&r, parts); err != nil {
				return err
			}
		}
		return nil
	})
}
