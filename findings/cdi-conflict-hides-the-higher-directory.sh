#!/usr/bin/env bash
# Two CDI files of one directory that define the same device hide it in every directory.
#
# Seen 2026-11-27 with tags.cncf.io/container-device-interface v1.1.0, the library by which
# containerd and CRI-O read CDI files. A later directory has priority over an earlier one, so
# /var/run/cdi is meant to win over /etc/cdi. But where two files of one directory define a device,
# neither counts, and neither does a sound definition of a directory with a lower or a higher
# priority: the device is not known at all. The error names the conflicting files only.
# https://github.com/cncf-tags/container-device-interface/blob/v1.1.0/pkg/cdi/cache.go
set -euo pipefail
folder=$(mktemp -d)
trap 'chmod -R u+w "$folder"; rm -rf "$folder"' EXIT
cd "$folder"
export GOPATH=$folder/go GOFLAGS=-mod=mod GOCACHE=$folder/cache

mkdir program
cat >program/main.go <<'GO'
package main

import (
	"fmt"
	"os"

	"tags.cncf.io/container-device-interface/pkg/cdi"
)

func main() {
	cache, err := cdi.NewCache(cdi.WithSpecDirs(os.Args[1:]...), cdi.WithAutoRefresh(false))
	if err != nil {
		fmt.Println("no cache:", err)
		os.Exit(2)
	}
	device := cache.GetDevice("example.com/gpu=0")
	if device == nil {
		fmt.Println("unknown")
		return
	}
	fmt.Println(device.ContainerEdits.Env[0])
}
GO
cat >program/go.mod <<'GO'
module finding

go 1.24

require tags.cncf.io/container-device-interface v1.1.0
GO
(cd program && go mod tidy 2>tidy.txt && go build -o ../probe .) || {
  cat program/tidy.txt >&2
  exit 1
}

device() { # FILE VALUE
  mkdir -p "$(dirname "$1")"
  printf '{"cdiVersion": "0.6.0", "kind": "example.com/gpu", "devices": [{"name": "0", "containerEdits": {"env": ["FROM=%s"]}}]}\n' "$2" >"$1"
}
wrong=0
expect() { # TITLE EXPECTED
  local got
  got=$(./probe "$folder/low" "$folder/high")
  printf '%-55s %s\n' "$1" "$got"
  if [ "$got" != "$2" ]; then
    echo "  changed: expected $2"
    wrong=1
  fi
}
device low/a.json low
expect "one file" FROM=low
device high/a.json high
expect "one in each directory" FROM=high
device high/b.json other
expect "two in the directory with priority, one below" unknown
rm high/b.json
device low/b.json other
expect "one in the directory with priority, two below" unknown
exit "$wrong"
