package backoff_test

import (
	"math/rand/v2"
)

func seeded(seed uint64) rand.Source { return rand.NewPCG(seed, 1) }
