#!/bin/sh
# Lay the headers of Debian's present cloud kernel down, with their compiler, and print the kernel's release.
# As files: installed as packages, they would have the good driver built for them first, which takes minutes.
set -eu
cd "$(mktemp -d)"
depends() { apt-cache depends "$1" | sed -n "s/^  Depends: \($2-.*\)/\1/p"; }
headers=$(depends linux-headers-cloud-amd64 linux-headers)
# shellcheck disable=SC2046
apt-get -qq install --no-install-recommends gcc libc6-dev make $(depends "$headers" gcc) >&2
# shellcheck disable=SC2046
apt-get -qq download "$headers" $(depends "$headers" linux-headers) $(depends "$headers" linux-kbuild) >&2
for package in *.deb; do dpkg-deb -x "$package" tree; done
mkdir -p /lib/modules
cp -a tree/usr/. /usr/
[ ! -d tree/lib ] || cp -a tree/lib/. /usr/lib/
release=${headers#linux-headers-}
test -e "/lib/modules/$release/build/Makefile" >&2
echo "$release"
