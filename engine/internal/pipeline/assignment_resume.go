//penstock:pure

package pipeline

import (
	"fmt"

	"github.com/penstock-io/penstock/stream"
)

// takingOf returns the request that makes this process the owner of an offered partition in the
// sink's ledger. This ledger is the record of the progress in the sink's database. The argument
// number identifies the assignment.
func takingOf(o *stream.PartitionOffer, number uint32) stream.Taking {
	return stream.Taking{
		Assignment: number, Part: o.Part, Start: markOfOffer(o),
		MustExist: o.Origin == stream.FromCommit && (o.Watermark.Num > 0 || len(o.Above) > 0),
	}
}

func markOfOffer(o *stream.PartitionOffer) stream.Mark {
	return stream.Mark{Part: o.Part, Watermark: o.Watermark, Above: o.Above}
}

// resumeAt decides at which position an assigned partition resumes. The source offers a position:
// usually the one that the broker stores. The sink's ledger may have another one. In the table, the
// offered position is "ours" if a commit of Penstock has stored it at the broker, and "others'" if
// other software has.
//
//	the sink's ledger     offered position              resume at
//	does not exist        any                           the offered position
//	has the partition     others', below the ledger's   error: somebody has reset it
//	has the partition     any other                     the ledger's position
//	lacks the partition   ours, with progress           error: the ledger was lost
//	lacks the partition   any other                     the offered position
//
// behind reports whether the ledger's position is below a position that Penstock has committed at
// the broker. This happens, for example, after the ledger was restored from a backup.
func resumeAt(o *stream.PartitionOffer, taken *stream.Taken) (at stream.Mark, behind bool, err error) {
	if taken == nil {
		return markOfOffer(o), false, nil
	}
	at = taken.Mark
	at.Part = o.Part
	below := o.Watermark.Compare(at.Watermark) < 0
	switch {
	case !taken.Found && takingOf(o, 0).MustExist:
		const lost = "partition %q is not read: %d was committed, but the sink's ledger does not have the partition; " +
			"restore the ledger, or set the position with the broker's tools to deliver again from there"
		return stream.Mark{}, false, fmt.Errorf(lost, o.Part.Name, o.Watermark.Num)
	case taken.Found && o.Origin == stream.FromOthers && below:
		const reset = "partition %q is not read: its position was set to %d by other software, but the sink's ledger " +
			"has everything up to %d; set the position to %d to resume, or delete the partition " +
			"from the ledger to deliver again"
		return stream.Mark{}, false, fmt.Errorf(reset, o.Part.Name, o.Watermark.Num, at.Watermark.Num, at.Watermark.Num)
	}
	return at, taken.Found && o.Origin == stream.FromCommit && o.Watermark.Compare(at.Watermark) > 0, nil
}

// checkOffers returns an error if offers violate the contract of stream.Assignments.
func checkOffers(offers []stream.PartitionOffer) error {
	seen := make(map[string]bool, len(offers))
	for i := range offers {
		o := &offers[i]
		switch {
		case o.Part.ID == "":
			return fmt.Errorf("offer %d has no partition id", i)
		case seen[o.Part.ID]:
			return fmt.Errorf("partition %q is offered twice", o.Part.ID)
		case o.Watermark.Key != "":
			return fmt.Errorf("partition %q: its position may not have a key", o.Part.ID)
		}
		seen[o.Part.ID] = true
	}
	return nil
}
