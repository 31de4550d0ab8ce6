package main

import "math/rand/v2"

var questions = []question{
	{
		name: "Next",
		about: "the next jittered wait; ours draws from a PCG of the caller's, " +
			"-nil and all others from the runtime",
		target: 1,
		answers: []answer{
			{lib: "penstock", bench: nextOurs(rand.NewPCG(1, 2))},
			{lib: "penstock-nil", bench: nextOurs(nil), aside: true},
			{lib: "cenkalti", bench: nextCenkalti},
			{lib: "jpillora", bench: nextJpillora},
			{lib: "avast", bench: nextAvast},
			{lib: "sethvargo", bench: nextSethvargo},
		},
	},
	{
		name: "DoSuccess", about: "a call that succeeds at once, context.Background()",
		target: .5, answers: does(false, false),
	},
	{
		name: "DoSuccessCancellable", about: "the same with a context that can be cancelled",
		target: .5, answers: does(false, true),
	},
	{
		name: "DoRetry", about: "one failure, a wait of 0, a success, context.Background()",
		target: .3, allocs: 1, answers: does(true, false),
	},
	{
		name: "DoRetryCancellable", about: "the same with a context that can be cancelled",
		target: .3, allocs: 1, answers: does(true, true),
	},
}

func does(again, cancellable bool) []answer {
	answers := []answer{
		{lib: "penstock", bench: ours(again, cancellable)},
		{lib: "avast", bench: ofAvast(again, cancellable)},
		{lib: "sethvargo", bench: ofSethvargo(again, cancellable, true)},
		{lib: "sethvargo-bare", bench: ofSethvargo(again, cancellable, false), aside: true},
		{lib: "cenkalti", bench: ofCenkalti(again, cancellable)},
		{lib: "failsafe-go", bench: ofFailsafe(again, cancellable)},
	}
	if !again {
		answers = append(answers, answer{lib: "floor", bench: ofFloor(cancellable), aside: true})
	}
	return answers
}
