#!/bin/bash
# One batch on the machine that was lent.
#
#   bash batch.sh start               unpack, see whether everything imports, start the runs and leave them running
#   bash batch.sh wait SECONDS DIR    until the runs are over, at most so long; then copy the archive to DIR
#
# PYTHONPATH may name a folder of dependencies. Everything is done in EVIDENCE_WORK, /tmp/evidence unless it is set.
# `start` again takes up a batch that was killed: what is complete is kept.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=${EVIDENCE_WORK:-/tmp/evidence}
python=${PYTHON:-python3}
export PYTHONPATH="$work/source/src:$work/source${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
export MUJOCO_GL=disable  # states need no OpenGL

case "${1:-}" in
start)
    if ! cmp -s "$here/manifest.json" "$work/manifest.json"; then
        rm -rf "$work"
        mkdir -p "$work/source"
        tar -C "$work/source" -xf "$here/source.tar"
        cp "$here/manifest.json" "$work/.manifest.new"
        mv "$work/.manifest.new" "$work/manifest.json"  # last: with it there, all of it is
    fi
    cd "$work"
    envs=$("$python" -c 'import json; print(*json.load(open("manifest.json"))["check"])')
    # shellcheck disable=SC2086
    "$python" -m evidence.package check $envs
    # Kernels of several processes then run beside each other. A daemon that is there already says so, which is fine.
    if command -v nvidia-cuda-mps-control >/dev/null; then setsid nvidia-cuda-mps-control -d || true; fi
    setsid nohup "$python" -m evidence.far "$work" >>"$work/far.log" 2>&1 </dev/null &
    echo "started in $work"
    ;;
wait)
    end=$((SECONDS + $2))
    while [ "$SECONDS" -lt "$end" ] && [ ! -e "$work/finished" ]; do sleep 1; done
    cat "$work/status.txt" || tail -n 30 "$work/far.log"
    mkdir -p "$3"
    cp "$work/evidence.tar.gz" "$3/.evidence.new"
    mv "$3/.evidence.new" "$3/evidence.tar.gz"
    ;;
*)
    sed -n '2,8s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
