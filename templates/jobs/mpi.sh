#!/bin/sh
# One pod of an MPI job. Every pod accepts logins from the others over SSH; the first one starts the
# program on all of them. Nothing runs as root, and the key is the job's own.
#
#   mpi.sh SERVICE PODS PROCESSES PROGRAM...
#
# The Job sets NODE_RANK, and names pods SERVICE-0, SERVICE-1, ...; JOB_KEY is the private key.
set -eu
service=$1 pods=$2 processes=$3
shift 3
umask 077
own=$HOME/.ssh
mkdir -p "$own"
cp "$JOB_KEY" "$own/id"
public=$(ssh-keygen -y -f "$own/id")
printf '%s\n' "$public" >"$own/authorized_keys"
printf '* %s\n' "$public" >"$own/known_hosts"
# A login has this container's environment: the limits of its GPUs are in it.
env | grep -E '^[A-Za-z_][A-Za-z0-9_]*=' >"$own/environment"
cat >"$own/config" <<END
Host $service-*
  HostName %h.$service
  Port 2222
  IdentityFile $own/id
  UserKnownHostsFile $own/known_hosts
  StrictHostKeyChecking yes
  ConnectTimeout 5
  LogLevel ERROR
END
cat >"$own/sshd" <<END
Port 2222
HostKey $own/id
AuthorizedKeysFile $own/authorized_keys
AuthenticationMethods publickey
PermitUserEnvironment yes
StrictModes no
PidFile none
END
if [ "$NODE_RANK" != 0 ]; then
  # The Job ends with its first pod, and ends this one.
  exec /usr/sbin/sshd -D -e -f "$own/sshd"
fi
number=0
while [ "$number" -lt "$pods" ]; do
  host=$service-$number
  printf '%s slots=%s\n' "$host" "$processes" >>"$own/hosts"
  # The others may still be pulling their image: the Job's time limit is the limit here too.
  until [ "$number" = 0 ] || ssh -F "$own/config" -o BatchMode=yes "$host" true 2>/dev/null; do
    sleep 0.5
  done
  number=$((number + 1))
done
export OMPI_MCA_plm_rsh_args="-F $own/config"
exec mpirun --hostfile "$own/hosts" -np "$((pods * processes))" "$@"
