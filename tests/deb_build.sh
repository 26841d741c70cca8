#!/bin/sh
# As root in a fresh minimal system with the tree in /try/tree: make, and the package, as README says. It goes to /try/out.
set -eu

cd /try/tree
sh tests/deps.sh make
make deb
mkdir /try/out
cp build/*.deb /try/out/
