#!/bin/sh
# Gets a batch on standard input. Status 0: it is delivered. 65: it will never be taken. 75: later. Anything else: again.
batch=$(mktemp ./batch.XXXXXX) || exit 75
if cat >"$batch" && mv "$batch" "delivered-$PENSTOCK_BATCH.txt"; then # the same batch again takes the same name
  exit 0
fi
rm -f "$batch"
exit 75
