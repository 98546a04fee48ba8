# PID 1 of a machine of the kernel matrix: runs the scenario suite for each probe set and says on the console, between two
# lines of its own, how it went. The ledgers leave the machine as an archive on its disk.
export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8

# The first file system of a kernel cannot be left by pivot_root: move to one that can.
if [ "$1" != moved ]; then
	/bin/busybox mkdir /new
	/bin/busybox mount -t tmpfs -o mode=755 root /new
	/bin/busybox cp -a /bin /etc /lib /lib64 /sbin /usr /var /root /home /suite /modules /init /new
	exec /bin/busybox switch_root /new /init moved
fi

say() {
	echo "capgate-vm: $*"
}

# Programs that a user space brings stay as they are.
/bin/busybox --list | while read -r applet; do
	[ -e "/usr/bin/$applet" ] || [ -e "/usr/sbin/$applet" ] || /bin/busybox ln -s /bin/busybox "/usr/bin/$applet"
done

mkdir -p /proc /sys /dev /tmp /run /mnt /ledgers
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /dev/pts
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t tmpfs -o mode=1777 tmp /tmp
mount -t tmpfs -o mode=755 run /run
mount -t cgroup2 cgroup2 /sys/fs/cgroup
ln -s /proc/self/fd /dev/fd
ln -s /proc/self/fd/0 /dev/stdin
ln -s /proc/self/fd/1 /dev/stdout
ln -s /proc/self/fd/2 /dev/stderr
# Messages of the kernel would stand in the middle of the suite's lines. Those of a panic still come.
dmesg -n 1
for module in /modules/*; do
	insmod "$module" || say "cannot load $module"
done
hostname capgate
ip link set lo up
cd /

for set in $CAPGATE_PROBE_SETS; do
	say "begin $set"
	mkdir "/ledgers/$set"
	env -u CAPGATE_PROBE_SETS CAPGATE_SCENARIO_PROBE_SET="$set" CAPGATE_SCENARIO_LEDGERS="/ledgers/$set" \
		CAPGATE_SCENARIO_BIN=/suite CAPGATE_SCENARIO_PROGRAMS=/suite/programs /suite/scenarios --color never </dev/null 2>&1
	say "end $set $?"
done
tar -c -f /dev/vda -C /ledgers . || say "cannot leave the ledgers"
sync
poweroff -f
