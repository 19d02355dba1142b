# Process 1 of a host: mounts of its own, so that libvirt's files stand over the machine's and what libvirtd keeps is the host's.
# What was unpacked for libvirt, or nothing where the machine's own is meant: $1. The host's folder: $2. What libvirtd may keep for other
# hosts, of what QEMU can do: $3. A folder that the host still sees where it is below /run, if any: $4.
set -eu
libvirt=$1
folder=$2
cache=$3
seen=${4-}

# Its users and folders, under the machine's. libvirtd does not start without this user, even where QEMU runs as root.
mkdir -p "$folder"/below/etc/libvirt "$folder"/below/var/{lib,log,cache}/libvirt "$folder"/below/var/log/swtpm "$folder"/{etc,lib,log,run}
{ cat /etc/passwd; echo "libvirt-qemu:x:64055:64055::/:/usr/sbin/nologin"; } >"$folder/below/etc/passwd"
{ cat /etc/group; echo "libvirt-qemu:x:64055:"; } >"$folder/below/etc/group"
[ -z "$libvirt" ] || mount -t overlay overlay -o lowerdir="$libvirt/usr:/usr" /usr
mount -t overlay overlay -o lowerdir="$folder/below/etc:/etc" /etc
mount -t overlay overlay -o lowerdir="$folder/below/var:/var" /var
mount --bind "$folder/etc" /etc/libvirt
for kept in lib log; do mount --bind "$folder/$kept" "/var/$kept/libvirt"; done
mount --bind "$cache" /var/cache/libvirt
# What TPMs that are programs log: libvirt makes a folder in there for them.
mount -t tmpfs tmpfs /var/log/swtpm
# libvirtd starts each QEMU that it finds twice.
! [ -e /usr/bin/qemu-system-i386 ] || mount --bind /dev/null /usr/bin/qemu-system-i386
# Made aside, as what is to be seen in it is below the machine's.
mkdir -p "$folder/below/run"
mount -t tmpfs tmpfs "$folder/below/run"
case $seen in
/run/*)
    mkdir -p "$folder/below$seen"
    mount --rbind "$seen" "$folder/below$seen"
    ;;
esac
mkdir -p "$folder/below/run/libvirt"
mount --bind "$folder/run" "$folder/below/run/libvirt"
mount --rbind "$folder/below/run" /run
ip link set lo up

cat >/etc/libvirt/libvirtd.conf <<CONF
host_uuid = "$(cat /proc/sys/kernel/random/uuid)"
auth_unix_rw = "none"
unix_sock_group = "root"
log_outputs = "2:file:/var/log/libvirt/libvirtd.log"
CONF
cat >/etc/libvirt/qemu.conf <<CONF
user = "root"
group = "root"
security_driver = "none"
cgroup_controllers = []
namespaces = []
stdio_handler = "file"
CONF

# What ends here is reaped by the kernel: libvirt takes a zombie for a QEMU that will not end.
echo ready >"$folder/ready"
exec env --ignore-signal=CHLD sleep infinity
