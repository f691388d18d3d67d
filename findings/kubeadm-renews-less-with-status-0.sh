#!/usr/bin/env bash
# `kubeadm certs renew` ends with status 0 where it has renewed nothing.
#
# Seen 2026-11-30 with k8s.io/kubernetes v1.36.3. Without the authority's key, as a careful
# administrator keeps it elsewhere, and for a certificate that is not there, one line says so and the
# status is 0; `renew all` ends with "Done renewing certificates" besides. A job that renews by the
# status finds out when the certificate ends.
# https://github.com/kubernetes/kubernetes/blob/v1.36.3/cmd/kubeadm/app/cmd/certs.go
set -euo pipefail
folder=$(mktemp -d)
trap 'chmod -R u+w "$folder"; rm -rf "$folder"' EXIT
cd "$folder"
version=1.36.3
export GOPATH=$folder/go GOFLAGS=-mod=mod GOCACHE=$folder/cache

mkdir program
cd program
printf 'module finding\n\ngo 1.26\n\nrequire k8s.io/kubernetes v%s\n' "$version" >go.mod
# Kubernetes' own modules stand in its go.mod without a version: a program of one release has them of that release.
(cd / && go mod download -json "k8s.io/kubernetes@v$version") >module.json
source=$(sed -n 's/.*"Dir": "\(.*\)".*/\1/p' module.json)
for staged in $(sed -n 's/^\t*\(k8s.io\/[a-z-]*\) => .*/\1/p' "$source/go.mod"); do
  go mod edit -replace="$staged=$staged@v0.${version#1.}"
done
go build -o ../kubeadm k8s.io/kubernetes/cmd/kubeadm 2>build.txt || {
  cat build.txt >&2
  exit 1
}
cd ..

cat >cluster.yml <<YAML
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v$version
certificatesDir: $folder/pki
controlPlaneEndpoint: 192.0.2.1:6443
YAML
./kubeadm init phase certs all --config cluster.yml >/dev/null 2>&1
mv pki/ca.key elsewhere.key
rm pki/front-proxy-client.crt

wrong=0
expect() { # NAME LINE
  local said status=0 before after
  before=$(sha256sum pki/apiserver.crt)
  said=$(./kubeadm certs renew "$1" --config cluster.yml 2>&1) || status=$?
  after=$(sha256sum pki/apiserver.crt)
  printf '%s: status %s, the API server'\''s certificate is %s\n' "$1" "$status" "$([ "$before" = "$after" ] && echo as before || echo another)"
  printf '%s\n' "$said" | grep -F "$2" | sed 's/^/  /' || { echo "  not said: $2"; wrong=1; }
  [ "$status $before" = "0 $after" ] || wrong=1
}
echo "kubeadm $version, without the authority's key and the front proxy's certificate"
expect apiserver "can't be renewed"
expect front-proxy-client "MISSING!"
expect all "Done renewing certificates"
mv elsewhere.key pki/ca.key
before=$(sha256sum pki/apiserver.crt)
./kubeadm certs renew apiserver --config cluster.yml >/dev/null
[ "$before" != "$(sha256sum pki/apiserver.crt)" ] || { echo "with the key nothing is renewed either"; wrong=1; }
exit "$wrong"
