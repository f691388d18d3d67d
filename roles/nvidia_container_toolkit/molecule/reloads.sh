#!/bin/sh
# Starts a container with a GPU and has systemd read its units again: fails where the container sees another GPU after it, or none.
# Usage: reloads.sh crictl|docker IMAGE
set -eu
engine=$1 image=$2
work=$(mktemp -d)

end() {
    case $engine in
    crictl) crictl rmp --force "$(cat "$work/pod")" ;;
    docker) docker rm --force "$(cat "$work/container")" ;;
    esac > /dev/null
    rm -r "$work"
}

look() {
    case $engine in
    crictl) crictl exec --sync "$(cat "$work/container")" nvidia-smi -L ;;
    docker) docker exec "$(cat "$work/container")" nvidia-smi -L ;;
    esac
}

trap end EXIT
case $engine in
crictl)
    spaces='"security_context": {"namespace_options": {"network": 2, "pid": 1}}'
    cat > "$work/pod.json" <<END
{"metadata": {"name": "reloads", "namespace": "tests", "uid": "reloads"}, "linux": {"cgroup_parent": "system.slice", $spaces}}
END
    cat > "$work/container.json" <<END
{"metadata": {"name": "reloads"}, "image": {"image": "$image"}, "command": ["sleep", "600"],
 "CDI_devices": [{"name": "nvidia.com/gpu=0"}], "linux": {$spaces}}
END
    crictl runp "$work/pod.json" > "$work/pod"
    crictl create --no-pull "$(cat "$work/pod")" "$work/container.json" "$work/pod.json" > "$work/container"
    crictl start "$(cat "$work/container")" > /dev/null
    ;;
docker)
    docker run --detach --network none --runtime nvidia --env NVIDIA_VISIBLE_DEVICES=0 "$image" sleep 600 > "$work/container"
    ;;
esac
before=$(look)
case $before in "GPU 0: "*) ;; *) echo "before: $before"; exit 1 ;; esac
for reload in daemon-reload daemon-reexec; do
    systemctl $reload
    after=$(look) || true
    [ "$after" = "$before" ] || { echo "$reload: $after"; exit 1; }
done
echo "$before"
