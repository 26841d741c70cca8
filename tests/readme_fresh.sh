#!/bin/sh
# As root in a fresh minimal system with the tree in /try/tree: the first of README's two commands works as it stands for a user who has sudo, and brings HTML
# reports; and make says in one line what it has to leave out, if npm is not there.
set -eu

apt-get -qq update
DEBIAN_FRONTEND=noninteractive apt-get -qq -y install --no-install-recommends sudo >/dev/null
useradd --create-home --shell /bin/sh tester
echo 'tester ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/tester
chown -R tester: /try/tree
cd /try/tree
line=$(sed -n 's/^\(.*make demo\) *#.*/\1/p' README.md)
test -n "$line"
test ! -e /usr/bin/make && test ! -e /usr/bin/git
runuser -u tester -- env HOME=/home/tester sh -c "$line" >/try/said 2>&1 || { tail -n 40 /try/said >&2 && exit 1; }
grep -q '^Installing through sudo: make$' /try/said
grep -q '^Installing through sudo: .*npm' /try/said
if grep '^Missing in this build' /try/said >&2; then exit 1; fi

# Again, as it is without npm.
mkdir /try/bin
for tool in /usr/bin/*; do
	case ${tool##*/} in npm | node | nodejs) ;; *) ln -s "$tool" /try/bin/ ;; esac
done
PATH=/try/bin make B=/try/without >/try/said 2>&1
tail -n 1 /try/said | grep -qx 'Missing in this build: HTML reports (spikewatch report), because there is no npm. To get them: make report'
test "$(grep -c Missing /try/said)" = 1
make B=/try/without report >/try/said 2>&1
if grep Missing /try/said >&2; then exit 1; fi
