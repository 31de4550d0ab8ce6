#!/bin/sh
# A worker of the protocol ndjson: keeps each batch's line as it came, and answers that it was delivered. With one batch in
# flight (the default) an answer needs no id.
while IFS= read -r batch; do
  if printf '%s\n' "$batch" >>batches.ndjson; then
    echo '{"delivered":true}'
  else
    echo '{"delivered":false,"error":"batches.ndjson cannot be written","retry_after":5}'
  fi
done
