# Process 1 of a clean Debian: mounts of its own, over files that stay as they are: $1. A folder of its own, with packages: $2.
set -eu
base=$1
folder=$2

mount -t tmpfs tmpfs "$folder/over"
mkdir "$folder"/over/{upper,work,root}
root=$folder/over/root
mount -t overlay overlay -o lowerdir="$base",upperdir="$folder/over/upper",workdir="$folder/over/work" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount --rbind /dev "$root/dev"
mkdir "$root/packages"
mount --bind "$folder/packages" "$root/packages"
echo clean >/proc/sys/kernel/hostname
ip link set lo up
# A host in a cluster has an address at which others could reach it.
ip link add nic0 type veth peer name far
ip address add 10.0.0.1/24 dev nic0
ip link set nic0 up
ip link set far up

# What systemd would be asked to do is written down: it does not run here. An agent is active where a file says so.
mkdir -p "$root/run/systemd/system"
cat >"$root/usr/bin/systemctl" <<'SYSTEMCTL'
#!/bin/sh
echo "$*" >>/packages/systemctl
[ "$1" != is-active ] || [ -e /packages/active ]
SYSTEMCTL
chmod 755 "$root/usr/bin/systemctl"

# What ends here is reaped by the kernel.
echo ready >"$folder/ready"
exec env --ignore-signal=CHLD chroot "$root" sleep infinity
