package http

import "github.com/penstock-io/penstock/stream"

// JudgeBulk is what a bulk's answer means for b.
func JudgeBulk(b *stream.Batch, answer []byte) error {
	fates, err := bulkFates(answer, b.Kept(), true)
	if err != nil {
		return err
	}
	return settle(b, fates, "POST somewhere")
}
