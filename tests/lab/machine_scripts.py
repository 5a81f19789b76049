"""Shell scripts that run in the lab's machines after they have booted."""

from __future__ import annotations

# The server that a distribution starts: tare and its users reach the machine as any other.
SSH = """
mkdir -p /run/sshd
[ -e /run/host_key ] || ssh-keygen -q -t ed25519 -N "" -f /run/host_key
echo "ssh-ed25519 $1" >/run/authorized_keys
/usr/sbin/sshd -f /dev/null -o HostKey=/run/host_key -o AuthorizedKeysFile=/run/authorized_keys \
    -o PasswordAuthentication=no -o UsePAM=no -o MaxSessions=100 -o StrictModes=no </dev/null >/dev/null 2>&1
cut -d " " -f 1,2 /run/host_key.pub
"""
# What a distribution's own first program would have done, and our guest does not need.
COMMON = """
hostname "$1"
grep -qs "$1" /etc/hosts || echo "127.0.0.1 localhost $1" >> /etc/hosts
[ -s /etc/machine-id ] || tr -d - < /proc/sys/kernel/random/uuid > /etc/machine-id
for link in fd:fd stdin:fd/0 stdout:fd/1 stderr:fd/2; do ln -sfn "/proc/self/${link#*:}" "/dev/${link%:*}"; done
mkdir -p /run/lock
echo "a machine of tare's lab, in QEMU's emulation" > /etc/tare-emulated
"""
# The images, where tare looks for what it has carried to a host. What is told are devices, each with its name there.
# The device mapper's snapshots for Xen's guests need a file, which tare makes of the root.
DISKS = """
mkdir -p /var/lib/tare/images
cd /var/lib/tare/images
shift
while [ $# -gt 0 ]; do
    home=${2%/*}
    case $2 in
    */root.ext4)
        mkdir -p "$home/root"
        mount -o ro,noload "$1" "$home/root"
        [ -e "$home/kernel" ] || cp "$home"/root/boot/vmlinuz-* "$home/kernel"
        [ -e "$home/initrd" ] || cp "$home/root/boot/initrd" "$home/initrd"
        ;;
    esac
    [ -e /sys/hypervisor/type ] || ln -sfn "$1" "$2"
    shift 2
done
"""
# LXD's machines: the emulator ends where a guest of KVM's writes CR8 while an interrupt waits for it, as UEFI's own
# drivers do (an assertion of QEMU 7.2 and 10.0). With that controller outside of KVM, such a write leaves the guest.
KVM = """
mkdir -p /usr/local/libexec/tare-lab
cat > /usr/local/libexec/tare-lab/qemu-system-x86_64 <<'END'
#!/bin/sh
case " $* " in
*" -readconfig "*) set -- "$@" -machine kernel_irqchip=off -cpu host,-kvm-asyncpf-int ;;
esac
exec /usr/bin/qemu-system-x86_64 "$@"
END
chmod 755 /usr/local/libexec/tare-lab/qemu-system-x86_64
modprobe -a kvm_amd vhost_vsock tun loop
test -w /dev/kvm
chmod 666 /dev/net/tun # udev's rule; QEMU of LXD's opens it as nobody
echo 0 > /sys/module/kvm/parameters/halt_poll_ns # waiting busily costs the real machine's processors
containerd --log-level error &
dockerd --log-level error --containerd=/run/containerd/containerd.sock &
PATH="/usr/local/libexec/tare-lab:$PATH" lxd --group root &
tries=0
until docker version && lxc info; do
    tries=$((tries + 1))
    [ "$tries" -lt 60 ]
    sleep 1
done
"""
ARM64_MACHINE = """
modprobe -a tun loop
containerd --log-level error &
dockerd --log-level error --containerd=/run/containerd/containerd.sock &
tries=0
until docker version; do
    tries=$((tries + 1))
    [ "$tries" -lt 120 ]
    sleep 1
done
"""
XEN = """
modprobe -a xen-evtchn xen-gntdev xen-gntalloc xen-netback xen-blkback xen-privcmd tun loop
mkdir -p /var/log/xen
/etc/init.d/xen start
xl info
"""
