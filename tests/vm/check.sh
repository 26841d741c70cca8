#!/usr/bin/env bash
# make check-vm: the Debian package in a Debian 12 that boots, once with cgroup v2 and once with cgroup v1, each a machine that
# qemu emulates in software: no KVM, no network. What is checked is in guest/, and runs inside.
#
# Each machine prints a line for each check: "ok NAME", or "FAIL NAME: why" with what the journal says below it. Exits 0 only if
# both machines came to their end and nothing failed. Works as root in a plain container.
#
# B=DIR        where the package is, and what is built here: $B/vm
# KEEP=1       use the root file system of the last run again, if it has the same packages
# CGROUPS=v2   only this machine
# CHECKS=a,b   only these files of guest/: check_a.py, check_b.py; install.py always
# CHECKS_V1=a  the same for the machine with cgroup v1
# KERNEL=SUITE the kernel of another suite of Debian in the same system, unpacked beside the package manager, as it needs newer
#              tools of that suite to be installed: bookworm-backports, trixie, sid
# APT_OPTION=O   for the mirror of that suite: Acquire::Check-Valid-Until "false"
# LIMIT_SECONDS=900  how long a machine may take; more on a host that is busy with other things
set -euo pipefail

build=${B:-build}
here=$(dirname "$0")
cgroups=${CGROUPS:-v2 v1}
# Three times what a machine takes where nothing else runs.
limit_seconds=${LIMIT_SECONDS:-900}
# The same until the first check, which needs nothing of what is tried here: six times what that takes.
boot_seconds=$((limit_seconds / 5))
silent_seconds=$((limit_seconds / 3))

# curl and libmicrohttpd12 are what the package only recommends.
packages=systemd,systemd-sysv,udev,dbus,lz4,procps,python3,curl,libmicrohttpd12
packages+=$([ -n "${KERNEL:-}" ] && echo ,initramfs-tools,kmod || echo ,linux-image-cloud-amd64)
work=$build/vm${KERNEL:+-$KERNEL}

# The emulated CPU, as these kernels were seen to boot with it.
case ${KERNEL:-} in
'') emulated="tcg,thread=multi -cpu max" ;;
sid) emulated="tcg,thread=single -cpu max" ;;
*) emulated="tcg,thread=single -cpu max,-cx16" ;;
esac

cleanup() {
	local file
	for file in "$work"/*.pid; do
		[ -e "$file" ] && kill "$(cat "$file")"
	done
	rm -f "$work/disk.img"
}

say() { printf '== %s\n' "$*"; }

# Only what mounts a virtual disk: the boot unpacks all of it with an emulated CPU.
small_initrd='mkdir -p "$1/etc/initramfs-tools/conf.d" &&
	printf "MODULES=list\nCOMPRESS=lz4\n" >"$1/etc/initramfs-tools/conf.d/vm" &&
	printf "%s\n" virtio_pci virtio_blk ext4 >"$1/etc/initramfs-tools/modules"'

# The kernel of $KERNEL, in one package or (from 7.1 on) in four, with an initrd that the tools of Debian 12 make.
unpack_kernel='cd "$1/tmp" && export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" &&
	version=$(apt-cache show "linux-image-cloud-amd64/'${KERNEL:-}'" | sed -n "/^Depends:/ s/.*linux-image-\([^ ,]*\).*/\1/p" | head -n 1) &&
	packages=$(apt-cache pkgnames linux- | grep -E "^linux-(image|base|binary|modules)-" | grep -F -e "-$version" | grep -v -e -dbg -e -unsigned) &&
	apt-get --quiet --quiet -o APT::Sandbox::User=root download $packages && mkdir unpacked &&
	for package in ./*.deb; do dpkg-deb -x "$package" unpacked; done &&
	mkdir -p ../lib/modules && cp -a unpacked/lib/modules/* unpacked/usr/lib/modules/* ../lib/modules/ 2>/dev/null;
	cp unpacked/boot/* ../boot/ 2>/dev/null; rm -rf unpacked ./*.deb;
	for file in vmlinuz config; do
		[ -e "../boot/$file-$version" ] || cp "../lib/modules/$version/$file" "../boot/$file-$version" || exit 1
	done
	chroot "$1" depmod "$version" && chroot "$1" update-initramfs -c -k "$version"'

# What the package needs is installed from its own list of dependencies, before it: there is no network inside.
dependencies() {
	dpkg-deb -f "$1" Pre-Depends Depends | sed 's/^[A-Za-z-]*: //; s/([^)]*)//g; s/|[^,]*//g; s/ //g' | paste -sd,
}

make_root() {
	local wanted
	wanted=$packages,$(dependencies "$deb")
	[ -n "${KEEP:-}" ] && [ "$wanted" = "$(cat "$work/root.packages" 2>/dev/null)" ] && return
	say "a Debian 12 with $wanted"
	rm -rf "$work/root" "$work/root.packages"
	set -- bookworm "$work/root"
	[ -z "${KERNEL:-}" ] || set -- --customize-hook="$unpack_kernel" "$@" "deb http://deb.debian.org/debian bookworm main" "deb http://deb.debian.org/debian $KERNEL main"
	mmdebstrap --quiet --variant=apt --include="$wanted" --essential-hook="$small_initrd" --aptopt='APT::Default-Release "bookworm"' ${APT_OPTION:+--aptopt="$APT_OPTION"} \
		--dpkgopt='path-exclude=/usr/share/locale/*' "$@"
	: >"$work/root/etc/fstab"
	echo vm >"$work/root/etc/hostname"
	ln -sf /dev/null "$work/root/etc/systemd/system/serial-getty@ttyS0.service"
	echo "$wanted" >"$work/root.packages"
}

# The same package with a higher version, to upgrade to.
make_next() {
	rm -rf "$work/next"
	dpkg-deb -R "$deb" "$work/next"
	sed -i 's/^Version: .*/&+next/' "$work/next/DEBIAN/control"
	dpkg-deb --root-owner-group -b "$work/next" "$work/root/vm/next.deb" >/dev/null
}

put_checks_into_root() {
	local root=$work/root
	rm -rf "$root/vm"
	mkdir "$root/vm"
	cp "$here"/guest/*.py "$root/vm/"
	cp "$here/../../daemon/engine/base/log.h" "$root/vm/messages.h"
	cp "$deb" "$root/vm/spikewatch.deb"
	make_next
	cp "$here/guest/checks.service" "$root/etc/systemd/system/"
	mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
	ln -sf ../checks.service "$root/etc/systemd/system/multi-user.target.wants/"
}

# Sparse. Both machines start from it; what they write goes to a file that qemu forgets (snapshot=on).
make_disk() {
	rm -f "$work/disk.img"
	mke2fs -q -t ext4 -d "$work/root" "$work/disk.img" 2G >/dev/null
}

# machine NAME OPTION...: the report goes to the screen and to $work/NAME.report, the console to $work/NAME.console.
machine() {
	local name=$1
	shift
	TMPDIR=$work timeout --kill-after=10 $limit_seconds qemu-system-x86_64 -nodefaults -display none -no-reboot -nic none \
		-accel $emulated -smp 2 -m 1024 \
		-kernel "$work"/root/boot/vmlinuz-* -initrd "$work"/root/boot/initrd.img-* \
		-append "root=/dev/vda rw console=ttyS0 systemd.show_status=0 panic=-1 $*" \
		-drive "file=$work/disk.img,format=raw,if=virtio,snapshot=on,cache=unsafe" -pidfile "$work/$name.pid" \
		-serial "file:$work/$name.console" -serial stdio </dev/null |
		sed -u 's/\r$//' | tee "$work/$name.report" | sed -u "s/^/$name: /" || true
}

# Ends a machine that has reported nothing for so long: since it was started, or since its last line.
end_if_silent() {
	local file=$work/$1.pid seconds=0 lines=0 now allowed=$boot_seconds
	sleep 5
	while [ "$seconds" -lt "$allowed" ]; do
		sleep 1
		[ -e "$file" ] || return 0
		seconds=$((seconds + 1))
		now=$(wc -l <"$work/$1.report")
		[ "$now" = "$lines" ] || { lines=$now seconds=0 allowed=$silent_seconds; }
	done
	kill "$(cat "$file")"
}

# boot v1|v2: seldom, emulated CPUs lose each other while the kernel starts. Such a machine is started again, up to twice;
# one that stands still later is, once, and it is said after which check it did.
boot() {
	local name=$1 options=vm.checks=${CHECKS:-} stood=0
	[ "$name" = v1 ] && options="systemd.unified_cgroup_hierarchy=0 vm.checks=${CHECKS_V1:-${CHECKS:-}}"
	for _ in 1 2 3; do
		end_if_silent "$name" >/dev/null 2>&1 &
		machine "$name" $options
		grep -q '^end: ' "$work/$name.report" && return
		if [ -s "$work/$name.report" ]; then
			echo "Unsteady, the machine $name stood still after: $(tail -n 1 "$work/$name.report")"
			stood=$((stood + 1))
		else
			echo "$name: it did not boot; its console:"
		fi
		tail -n 10 "$work/$name.console" | sed "s/^/$name:     /"
		[ "$stood" -lt 2 ] || break
	done
	echo "$name: FAIL the machine did not come to its end; its console:"
	tail -n 40 "$work/$name.console" | sed "s/^/$name:     /"
}

count() { cat "$work"/v?.report | grep -c "^$1 " || true; }

[ "$(id -u)" = 0 ] || { echo "check-vm: needs root, to make a root file system" >&2 && exit 1; }
deb=$(ls -t "$build"/spikewatch_*.deb 2>/dev/null | head -n 1)
[ -n "$deb" ] || { echo "check-vm: there is no $build/spikewatch_*.deb: make deb" >&2 && exit 1; }
mkdir -p "$work"
rm -f "$work"/*.report "$work"/*.console "$work"/*.pid
trap cleanup EXIT
trap 'exit 130' INT TERM HUP
make_root
put_checks_into_root
make_disk
for name in $cgroups; do
	say "a machine with cgroup $name"
	boot "$name" &
done
wait

ended=$(cat "$work"/v?.report | grep -c '^end: ' || true)
passed=$(count ok) failed=$(($(count FAIL) + $(echo $cgroups | wc -w) - ended))
grep -h '^FAIL ' "$work"/v?.report || true
printf 'check-vm: %d passed, %d failed\n' "$passed" "$failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
