#!/usr/bin/env bash
# Runs a program under mpirun with a timeout and prints the output and exit code of each rank:
#   mpirun.sh SECONDS OPTIONS... -- PROGRAM ARGUMENTS...
# Needed because mpirun kills the job when a rank fails and loses unread output.
set -uo pipefail

if [ "$1" = --rank ]; then
  out=$2/${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
  shift 2
  "$@" >"$out.text" 2>&1
  code=$?
  echo "$code" >"$out.code"
  exit "$code"
fi

seconds=$1
shift
options=()
while [ "$1" != -- ]; do
  options+=("$1")
  shift
done
shift
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

timeout --kill-after=10 "$seconds" mpirun "${options[@]}" "$0" --rank "$folder" "$@" </dev/null
code=$?
[ "$code" -eq 0 ] || echo "--- mpirun: exit code $code$([ "$code" -ne 124 ] || echo ": timed out after $seconds s")"
for rank in $(cd "$folder" && find . -name '*.text' | sed 's/[^0-9]//g' | sort -n); do
  out=$folder/$rank
  end=$(cat "$out.code" 2>/dev/null || echo "none: killed with the job")
  [[ $end =~ ^[0-9]+$ ]] && [ "$end" -gt 128 ] && end="$end: signal $((end - 128))"
  echo "--- rank $rank, exit code $end"
  cat "$out.text"
done
exit "$code"
