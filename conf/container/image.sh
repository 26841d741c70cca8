#!/bin/sh
# An OCI image of the Debian package: a minimal system of this machine's release with the package in it, as one layer, in an archive that skopeo,
# podman, ctr and docker (25 and later) load: spikewatch-VERSION.oci.tar. The same package, release and date give the same bytes, as long as the
# release's packages are the same. Needs mmdebstrap, and root or a user who may make namespaces. $B: where the package is and the image goes;
# What the container may do is for who starts it to say: docs/containers.md lists the capabilities, SYS_NICE and BPF among them, and what each is for.
# $VERSION; $MIRROR: of Debian or Ubuntu, by default where this machine has its own packages from; SOURCE_DATE_EPOCH: seconds since 1970.
set -eu

release=$(. /etc/os-release && echo "$VERSION_CODENAME")
arch=$(dpkg --print-architecture)
deb=$B/spikewatch_$VERSION-1_$arch.deb
image=$B/spikewatch-$VERSION.oci.tar
: "${SOURCE_DATE_EPOCH:=$(stat -c %Y CHANGELOG.md)}"
export SOURCE_DATE_EPOCH
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP

test -f "$deb" || {
	echo "image: there is no $deb: make deb" >&2
	exit 1
}

# Its dependencies as names, of alternatives the first.
needed() {
	dpkg-deb -f "$deb" Pre-Depends Depends | sed 's/^[A-Za-z-]*: //; s/ *([^)]*)//g; s/ *|[^,]*//g; s/ //g' | paste -s -d,
}

# What it recommends, for metrics over HTTP: of alternatives the first that this release has.
recommended() {
	dpkg-deb -f "$deb" Recommends | tr ',' '\n' | sed 's/([^)]*)//g; s/|/ /g' | while read -r names; do
		for name in $names; do
			if apt-cache show "$name" >/dev/null 2>&1; then
				printf ',%s' "$name"
				break
			fi
		done
	done
}

sources() {
	for file in /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list.d/ubuntu.sources; do
		test -s "$file" && grep -q '^[^#]' "$file" && echo "$file"
	done
	true
}

# What only a whole system has use for, and what says when and where it was made, is left out.
root_tar() {
	mmdebstrap --quiet --variant=minbase --include="$(needed)$(recommended)" \
		--customize-hook="copy-in $deb /root" \
		--customize-hook='chroot "$1" dpkg -i /root/'"${deb##*/}"' >/dev/null' \
		--customize-hook='rm -rf "$1"/root/*.deb "$1"/usr/share/man "$1"/usr/share/locale "$1"/usr/share/info "$1"/var/cache/* "$1"/var/log/* "$1"/var/lib/apt/lists/*' \
		--customize-hook='find "$1"/usr/share/doc -mindepth 1 -maxdepth 1 ! -name "spikewatch*" -exec find {} -type f ! -name copyright -delete ";"' \
		--customize-hook=': > "$1"/etc/machine-id; rm -f "$1"/etc/hostname "$1"/etc/resolv.conf; mkdir -p "$1"/host' \
		"$release" "$dir/root.tar" ${MIRROR:-$(sources)}
}

sum() {
	sha256sum "$1" | cut -d ' ' -f 1
}

# blob FILE: moves it to where its sum says; prints "sum size".
blob() {
	digest=$(sum "$1")
	size=$(stat -c %s "$1")
	mv "$1" "$dir/oci/blobs/sha256/$digest"
	echo "$digest $size"
}

layout() {
	created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
	mkdir -p "$dir/oci/blobs/sha256"
	diff=$(sum "$dir/root.tar")
	gzip -n "$dir/root.tar"
	layer=$(blob "$dir/root.tar.gz")

	cat >"$dir/config" <<-END
		{"created":"$created","architecture":"$arch","os":"linux","config":{"User":"0:0","ExposedPorts":{"7745/tcp":{}},
		"Env":["PATH=/usr/sbin:/usr/bin:/sbin:/bin","LC_ALL=C.UTF-8"],"Entrypoint":["/usr/bin/spikewatchd"],"WorkingDir":"/",
		"StopSignal":"SIGTERM","Labels":{"org.opencontainers.image.title":"spikewatch",
		"org.opencontainers.image.description":"Flight recorder for CPU and memory spikes of other processes",
		"org.opencontainers.image.version":"$VERSION"}},"rootfs":{"type":"layers","diff_ids":["sha256:$diff"]},
		"history":[{"created":"$created","created_by":"spikewatch_$VERSION-1_$arch.deb on $release"}]}
	END
	config=$(blob "$dir/config")
	cat >"$dir/manifest" <<-END
		{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json",
		"config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:${config% *}","size":${config#* }},
		"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip","digest":"sha256:${layer% *}","size":${layer#* }}]}
	END
	manifest=$(blob "$dir/manifest")
	cat >"$dir/oci/index.json" <<-END
		{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[
		{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:${manifest% *}","size":${manifest#* },
		"annotations":{"org.opencontainers.image.ref.name":"$VERSION","io.containerd.image.name":"localhost/spikewatch:$VERSION"},
		"platform":{"architecture":"$arch","os":"linux"}}]}
	END
	printf '{"imageLayoutVersion":"1.0.0"}' >"$dir/oci/oci-layout"
}

root_tar
layout
tar -C "$dir/oci" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
	-cf "$image" oci-layout index.json blobs
echo "$image"
