# A systemd of its own for a trial: process 1 of namespaces of its own, in a file system of its own, with the
# gateway's unit and this machine's programs. Nothing of the machine's own systemd is touched.
#
# It reads commands, a line each, and runs them in there; "END STATUS" follows what each says. With the end
# of the commands all of it goes. "LACKING REASON": this machine cannot have it.
#
# usage: sh systemd.sh FOLDER GOODPUT, as process 1 of a process and a mount namespace with its own /proc;
# FOLDER has the configuration.
set -eu

lacking() {
	echo "LACKING $*"
	exit 3
}

# What is to be there once systemd runs; nobody else's file system has it.
mark=/run/goodput-trial

# As process 1 of the inner namespaces: makes the file system and becomes systemd.
if [ "$1" = inside ]; then
	folder=$2 goodput=$3 systemd=$4
	cd "$folder/root"
	mkdir -p etc/goodput etc/systemd/system/goodput-gateway.service.d
	mkdir -p dev proc sys run tmp root old var/lib var/log var/tmp
	chmod 1777 tmp var/tmp
	mkdir usr
	mount --rbind /usr usr
	for name in bin sbin lib lib32 lib64; do
		if [ -L "/$name" ]; then
			cp -P "/$name" "$name"
		elif [ -d "/$name" ]; then
			mkdir "$name"
			mount --rbind "/$name" "$name"
		fi
	done
	for name in passwd group nsswitch.conf ld.so.cache alternatives; do
		[ ! -e "/etc/$name" ] || cp -RP "/etc/$name" etc/
	done
	# A machine's number: without one the first boot would be set up.
	echo 676f6f64707574000000000000000001 > etc/machine-id
	: > etc/fstab
	mount -t tmpfs tmpfs usr/local/bin
	: > usr/local/bin/goodput
	mount --bind "$goodput" usr/local/bin/goodput
	mount -t proc proc proc
	mount -t sysfs sysfs sys
	mount -t cgroup2 cgroup2 sys/fs/cgroup
	mount -t tmpfs -o mode=755 tmpfs run
	# Its own terminals; the console of the machine is not for it.
	mount -t tmpfs -o mode=755 tmpfs dev
	for name in null zero full random urandom tty; do
		: > "dev/$name"
		mount --bind "/dev/$name" "dev/$name"
	done
	mkdir dev/pts dev/shm dev/mqueue dev/hugepages
	mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
	ln -s pts/ptmx dev/ptmx
	mount -t tmpfs tmpfs dev/shm
	cp "$folder/gateway.toml" etc/goodput/
	units=etc/systemd/system
	"$goodput" gateway unit > $units/goodput-gateway.service
	# There is no journal here.
	printf '[Service]\nStandardOutput=append:/run/gateway.log\nStandardError=inherit\n' \
		> $units/goodput-gateway.service.d/log.conf
	for name in basic sysinit shutdown; do
		printf '[Unit]\nDescription=%s\n' $name > $units/$name.target
	done
	pivot_root . old
	cd /
	umount -l /old
	: > $mark
	exec env -i container=goodput PATH=/usr/sbin:/usr/bin:/sbin:/bin SYSTEMD_UNIT_PATH=/etc/systemd/system \
		"$systemd" --system --unit=basic.target --show-status=no --log-target=null
fi

folder=$1 goodput=$2
systemd=
for file in /lib/systemd/systemd /usr/lib/systemd/systemd; do
	[ ! -x $file ] || systemd=$file
done
[ -n "$systemd" ] || lacking "systemd is not installed (Debian: apt-get install systemd)"
for program in systemctl systemd-analyze ip nft; do
	command -v $program > /dev/null || lacking "$program is not installed (Debian: apt-get install systemd iproute2 nftables)"
done
mount --make-rprivate /
mkdir "$folder/root" "$folder/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$folder/root" || lacking "it cannot mount"
# Its own group of processes, of which systemd makes its tree.
mount -t cgroup2 cgroup2 "$folder/cgroup" || lacking "cgroup2 cannot be mounted"
group="$folder/cgroup/goodput-trial-${folder##*/}"
mkdir "$group" || lacking "no control group can be made"
(
	echo 0 > "$group/cgroup.procs"
	exec unshare --mount --pid --uts --ipc --cgroup --fork --kill-child sh "$0" inside "$folder" "$goodput" "$systemd"
) < /dev/null > "$folder/systemd.log" 2>&1 &
own=$!

inside() {
	# Before it has changed over, its file system is this machine's: then the mark is not there.
	timeout -k 1 60 nsenter --mount=/proc/$own/ns/mnt --uts=/proc/$own/ns/uts --ipc=/proc/$own/ns/ipc \
		--cgroup=/proc/$own/ns/cgroup --pid=/proc/$own/ns/pid_for_children \
		env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C SYSTEMD_UNIT_PATH=/etc/systemd/system \
		sh -c "test -e $mark || exit 125; $1" < /dev/null 2>&1
}

tries=0
until inside "systemctl list-units" > /dev/null 2>&1; do
	tries=$((tries + 1))
	[ -d /proc/$own ] && [ $tries -lt 100 ] || lacking "systemd did not come up: $(tail -n 1 "$folder/systemd.log")"
	sleep 0.1
done
echo "END 0"

while read -r line; do
	status=0
	inside "$line" || status=$?
	echo "END $status"
done

kill -9 $own || :
wait $own 2> /dev/null || :
# A group can be taken away when its last process is gone.
tries=0
until find "$group" -depth -type d -exec rmdir {} + 2> /dev/null || [ $tries -ge 50 ]; do
	tries=$((tries + 1))
	sleep 0.1
done
umount "$folder/cgroup" "$folder/root"
rmdir "$folder/cgroup" "$folder/root"
