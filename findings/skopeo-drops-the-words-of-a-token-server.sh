#!/usr/bin/env bash
# skopeo drops what a registry's token server says of a refusal.
#
# Seen 2026-11-28 with skopeo 1.9.3 of Debian 12. All answers have the body
# {"errors": [{"code": "DENIED", "message": "the course is full"}]} of the distribution specification:
#   - 403 of the token server: "invalid status code from registry 403 (Forbidden)", without the words;
#   - 403 or 413 where an upload begins: "denied: the course is full";
#   - 507 there, which means "no room": "received unexpected HTTP status: 507 Insufficient Storage".
# So a registry that wants to say why (a quota, say) has to refuse the upload, with 403 or 413.
# Errors: https://github.com/opencontainers/distribution-spec/blob/main/spec.md#error-codes
set -euo pipefail
command -v skopeo >/dev/null || { echo "skopeo is missing: apt-get install skopeo, on Debian 12" >&2; exit 2; }
folder=$(mktemp -d)
server=
finish() {
  if [ -n "$server" ]; then kill "$server" 2>/dev/null || true; fi
  rm -rf "$folder"
}
trap finish EXIT
cd "$folder"

# A registry that has nothing and refuses: as its token server (/token), or with STATUS at an upload.
cat >registry.py <<'PYTHON'
import http.server, json, pathlib, sys

BODY = {"errors": [{"code": "DENIED", "message": "the course is full"}]}


class Registry(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers, body = {}, BODY
        if self.path.startswith("/token"):
            status = 403
        elif sys.argv[1] == "token":
            status = 401
            headers["WWW-Authenticate"] = f'Bearer realm="http://{self.headers["Host"]}/token",service="s"'
        elif self.path == "/v2/":
            status, body = 200, {}
        else:
            status = 404 if self.command in {"GET", "HEAD"} else int(sys.argv[1])
        content = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Type": "application/json", "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = answer

    def log_message(self, *_):
        pass


found = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry)
pathlib.Path("port.new").write_text(str(found.server_port))
pathlib.Path("port.new").rename("port")
found.serve_forever()
PYTHON

# An image of one layer.
python3 - <<'PYTHON'
import hashlib, io, json, pathlib, tarfile

blobs = pathlib.Path("image/blobs/sha256")
blobs.mkdir(parents=True)
OCI = "application/vnd.oci.image"


def put(content, kind):
    digest = hashlib.sha256(content).hexdigest()
    (blobs / digest).write_bytes(content)
    return {"mediaType": f"{OCI}.{kind}", "digest": f"sha256:{digest}", "size": len(content)}


tar = io.BytesIO()
tarfile.open(fileobj=tar, mode="w").close()
layer = put(tar.getvalue(), "layer.v1.tar")
inner = {"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]}}
config = put(json.dumps(inner).encode(), "config.v1+json")
manifest = {"schemaVersion": 2, "mediaType": f"{OCI}.manifest.v1+json", "config": config, "layers": [layer]}
index = {"schemaVersion": 2, "manifests": [put(json.dumps(manifest).encode(), "manifest.v1+json")]}
pathlib.Path("image/index.json").write_text(json.dumps(index))
pathlib.Path("image/oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
PYTHON

skopeo --version
wrong=0
expect() { # STATUS, and what skopeo says
  rm -f port
  python3 registry.py "$1" &
  server=$!
  until [ -e port ]; do kill -0 "$server"; sleep 0.1; done
  said=$(skopeo copy --retry-times 0 --dest-tls-verify=false oci:image "docker://127.0.0.1:$(<port)/intro/mine:1" 2>&1 | tail -n 1) || true
  kill "$server"
  wait "$server" 2>/dev/null || true
  server=
  echo "$1: $said"
  [[ $said == *"$2"* ]] || { echo "  expected: $2"; wrong=1; }
}
expect token "invalid status code from registry 403 (Forbidden)"
expect 403 "denied: the course is full"
expect 413 "denied: the course is full"
expect 507 "received unexpected HTTP status: 507 Insufficient Storage"
exit "$wrong"
