/*
 * demangle.h: what names of C++ and Rust say, as their sources have it: store::Table<int>::insert(int), alloc::vec::Vec<T>::push. Of Rust
 * names without the hash that tells copies apart.
 */
#ifndef SPIKEWATCH_DEMANGLE_H
#define SPIKEWATCH_DEMANGLE_H

#include <stddef.h>

/* Names that say more, terminator included, are left as they are. */
#define DEMANGLE_MAX 4096

/* The length of what is in ret, terminated; 0: it is no such name, or one that is too long. Bounded in memory, and nearly so in time. */
size_t demangle(const char *name, size_t len, char ret[DEMANGLE_MAX]);

#endif
