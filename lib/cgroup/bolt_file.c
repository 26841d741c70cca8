/*
 * bolt_file.c: down a B+ tree of pages, one page at a time.
 *
 * The format (bbolt's page.go, bucket.go, db.go; numbers in the machine's byte order): a file of
 * pages of one size.
 *
 *	page    id u64, flags u16, count u16, overflow u32; then count elements; continued in
 *	        `overflow` more pages
 *	meta    pages 0 and 1: magic u32, version u32, page size u32, flags u32, root bucket, freelist
 *	        u64, pages u64, txid u64, FNV-1a of that u64
 *	branch  elements of 16 bytes: offset of the key from the element u32, its length u32, page u64
 *	leaf    elements of 16 bytes: flags u32 (1: the value is a bucket), offset of the key u32, its
 *	        length u32, that of the value u32, which follows the key
 *	bucket  root page u64, sequence u64; root page 0: the page follows at once, within the value
 *
 * A transaction writes to pages that are free in the state before it, and ends with one of the two
 * metas. The pages of state N are so not changed by transaction N + 1, and are whole as long as no
 * later meta than N's is valid: that is checked again after everything was read, and before
 * anything is visited.
 *
 * Rejected: the shared lock with which readers of bbolt wait, since containerd holds the other one
 * as long as it runs; a mapping, which turns a file that shrinks into SIGBUS.
 */
#include "lib/cgroup/bolt_file.h"

#include "lib/base/base.h"
#include "lib/base/io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Bytes that are read of one page, with its overflow, at most. */
#define BOLT_FILE_PAGE_MAX (1024u * 1024)

#define MAGIC 0xED0CDAEDu
#define VERSION 2u
#define PAGE_HEAD 16u
#define META_SIZE 64u
#define META_SUMMED 56u
#define ELEMENT 16u
#define BUCKET_HEAD 16u
#define LEAF_IS_BUCKET 1u

/*
 * A tree of 4 KiB pages is at most four or five deep; a bucket of a container's labels is one page.
 */
#define DEPTH_MAX 16

/*
 * Read for one answer. What a container is described by is some 100 KiB at worst, in a page that
 * has its labels beside it.
 */
#define BYTES_MAX (8u * 1024 * 1024)

#define TRIES 4

enum { FLAG_BRANCH = 1, FLAG_LEAF = 2, FLAG_META = 4 };

struct page {
	char *data;
	size_t len;
	unsigned flags, count;
};

struct state {
	const struct bolt_file_source *source;
	uint32_t page_size;
	uint64_t root, pages, txid;
	uint64_t read; /* bytes, so far */
};

struct search {
	struct state state;
	const struct bolt_file_path *path;
	const char *key;
	struct buffer found; /* pairs of lengths, and bytes; visited once they are known to be of one state */
};

/* The number at a place that need not be aligned. */
#define GET(type, at) \
	__extension__({ \
		type value_; \
		memcpy(&value_, (at), sizeof(value_)); \
		value_; \
	})

/* ---- metas ---- */

static uint64_t sum(const char *data, size_t len)
{
	uint64_t hash = 14695981039346656037u;

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ (unsigned char)data[i]) * 1099511628211u;
	return hash;
}

/* 0; 1: there is no valid meta at that offset; -errno. */
static int read_meta(const struct bolt_file_source *source, uint64_t offset, struct state *ret)
{
	char head[PAGE_HEAD + META_SIZE];
	const char *meta = head + PAGE_HEAD;
	int r = source->read(source->ctx, offset, head, sizeof head);

	if (r < 0)
		return r == -ENODATA ? 1 : r;
	if (GET(uint32_t, meta) != MAGIC || GET(uint32_t, meta + 4) != VERSION ||
	    GET(uint64_t, meta + META_SUMMED) != sum(meta, META_SUMMED))
		return 1;

	ret->page_size = GET(uint32_t, meta + 8);
	ret->root = GET(uint64_t, meta + 16);
	ret->pages = GET(uint64_t, meta + 40);
	ret->txid = GET(uint64_t, meta + 48);
	if (ret->page_size < 512 || ret->page_size > 65536 || (ret->page_size & (ret->page_size - 1)) != 0)
		return 1;
	return 0;
}

/* The second meta is a page further on, and the first may be being written. */
static int read_state(const struct bolt_file_source *source, struct state *ret)
{
	static const uint32_t sizes[] = { 4096, 16384, 65536, 8192, 32768, 1024, 2048, 512 };
	struct state first = { .txid = 0 }, second = { .txid = 0 };
	int r = read_meta(source, 0, &first), other = 1;

	if (r < 0)
		return r;
	for (size_t i = 0; i < ARRAY_LEN(sizes) && other == 1; i++)
		if (r == 1 || sizes[i] == first.page_size) {
			other = read_meta(source, sizes[i], &second);
			if (other == 0 && second.page_size != sizes[i])
				other = 1;
		}
	if (other < 0)
		return other;
	if (r == 1 && other == 1)
		return -EBADMSG;

	*ret = other == 0 && (r == 1 || second.txid > first.txid) ? second : first;
	ret->source = source;
	ret->read = 0;
	return 0;
}

/* ---- pages ---- */

/* Whether its elements are within it. */
static bool is_whole(const struct page *page)
{
	return page->len >= PAGE_HEAD && (page->len - PAGE_HEAD) / ELEMENT >= page->count;
}

/* 0; -EBADMSG; -errno. page->data is the caller's to free. */
static int read_page(struct state *state, uint64_t id, struct page *ret)
{
	char head[PAGE_HEAD];

	if (id < 2 || id >= state->pages || id > INT64_MAX / state->page_size)
		return -EBADMSG;

	int r = state->source->read(state->source->ctx, id * state->page_size, head, sizeof head);

	if (r < 0)
		return r == -ENODATA ? -EBADMSG : r;

	uint64_t overflow = GET(uint32_t, head + 12), len = (overflow + 1) * state->page_size;

	state->read += len;
	if (GET(uint64_t, head) != id || len > BOLT_FILE_PAGE_MAX || overflow >= state->pages - id ||
	    state->read > BYTES_MAX)
		return -EBADMSG;

	AUTO_FREE char *data = malloc((size_t)len);

	if (!data)
		return -ENOMEM;
	r = state->source->read(state->source->ctx, id * state->page_size, data, (size_t)len);
	if (r < 0)
		return r == -ENODATA ? -EBADMSG : r;

	*ret = (struct page){ .len = (size_t)len, .flags = GET(uint16_t, data + 8), .count = GET(uint16_t, data + 10) };
	ret->data = TAKE(data);
	return is_whole(ret) ? 0 : -EBADMSG;
}

/* A piece of a page: where it begins, from an element on. */
static bool piece(const struct page *page, size_t element, uint64_t from, uint64_t len, const char **ret)
{
	uint64_t at = element + from;

	if (at > page->len || len > page->len - at)
		return false;
	*ret = page->data + at;
	return true;
}

struct element {
	const char *key, *value;
	size_t key_len, value_len;
	bool is_bucket;
	uint64_t page; /* of a branch */
};

static bool take_element(const struct page *page, unsigned i, struct element *ret)
{
	size_t at = PAGE_HEAD + (size_t)i * ELEMENT;
	const char *element = page->data + at;

	if (page->flags & FLAG_BRANCH) {
		*ret = (struct element){ .key_len = GET(uint32_t, element + 4), .page = GET(uint64_t, element + 8) };
		return piece(page, at, GET(uint32_t, element), ret->key_len, &ret->key);
	}

	*ret = (struct element){
		.is_bucket = GET(uint32_t, element) & LEAF_IS_BUCKET,
		.key_len = GET(uint32_t, element + 8),
		.value_len = GET(uint32_t, element + 12),
	};
	return piece(page, at, GET(uint32_t, element + 4), ret->key_len, &ret->key) &&
	       piece(page, at, (uint64_t)GET(uint32_t, element + 4) + ret->key_len, ret->value_len, &ret->value);
}

/* memcmp's order; what is shorter is before what it begins. */
static int compare(const struct element *element, const char *key)
{
	size_t len = strlen(key), least = len < element->key_len ? len : element->key_len;
	int order = memcmp(element->key, key, least);

	return order != 0 ? order : (element->key_len > len) - (element->key_len < len);
}

/*
 * The last element whose key is not above key; of a leaf it must be that key. 0; -ENOENT; -EBADMSG.
 */
static int find_element(const struct page *page, const char *key, struct element *ret)
{
	unsigned low = 0, high = page->count; /* the first that is above is within [low, high] */
	bool branch = page->flags & FLAG_BRANCH;

	while (low < high) {
		unsigned middle = low + (high - low) / 2;

		if (!take_element(page, middle, ret))
			return -EBADMSG;
		if (compare(ret, key) <= 0)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == 0)
		return -ENOENT;
	if (!take_element(page, low - 1, ret))
		return -EBADMSG;
	return branch || compare(ret, key) == 0 ? 0 : -ENOENT;
}

/* ---- what is found ---- */

static int gather(struct search *search, const struct element *element)
{
	const size_t lengths[] = { element->key_len, element->value_len };
	int r = buffer_append(&search->found, lengths, sizeof lengths);

	if (r == 0)
		r = buffer_append(&search->found, element->key, element->key_len);
	if (r == 0)
		r = buffer_append(&search->found, element->value, element->value_len);
	return r == -EFBIG ? -EBADMSG : r;
}

/* ---- down ---- */

/* A bucket's tree, from one of its pages on: what is in there of the path from `step` on. */
static int descend(struct search *search, const struct page *page, size_t step, unsigned depth);

static int descend_to(struct search *search, uint64_t id, size_t step, unsigned depth)
{
	struct page page = { .data = NULL };
	int r = depth == DEPTH_MAX ? -EBADMSG : read_page(&search->state, id, &page);

	if (r == 0)
		r = descend(search, &page, step, depth + 1);
	free(page.data);
	return r;
}

/* Into the bucket that a leaf's element is. */
static int enter(struct search *search, const struct element *element, size_t step, unsigned depth)
{
	struct page page = { .data = NULL };

	if (!element->is_bucket || element->value_len < BUCKET_HEAD)
		return element->is_bucket ? -EBADMSG : -ENOENT;

	uint64_t root = GET(uint64_t, element->value);

	if (root != 0)
		return descend_to(search, root, step + 1, depth);
	if (depth == DEPTH_MAX || element->value_len < BUCKET_HEAD + PAGE_HEAD)
		return -EBADMSG;

	/* In a room of its own: is_whole and piece count from its beginning. */
	AUTO_FREE char *copy = malloc(element->value_len - BUCKET_HEAD);

	if (!copy)
		return -ENOMEM;
	memcpy(copy, element->value + BUCKET_HEAD, element->value_len - BUCKET_HEAD);
	page = (struct page){ .data = copy,
			      .len = element->value_len - BUCKET_HEAD,
			      .flags = GET(uint16_t, copy + 8),
			      .count = GET(uint16_t, copy + 10) };
	return is_whole(&page) ? descend(search, &page, step + 1, depth + 1) : -EBADMSG;
}

/* All pairs below a page. */
static int gather_all(struct search *search, const struct page *page, size_t step, unsigned depth)
{
	struct element element;
	int r = 0;

	for (unsigned i = 0; r == 0 && i < page->count; i++) {
		if (!take_element(page, i, &element))
			return -EBADMSG;
		if (page->flags & FLAG_BRANCH)
			r = descend_to(search, element.page, step, depth);
		else if (!element.is_bucket)
			r = gather(search, &element);
	}
	return r;
}

static int descend(struct search *search, const struct page *page, size_t step, unsigned depth)
{
	bool last = step == search->path->count;
	struct element element;

	if (!(page->flags & (FLAG_BRANCH | FLAG_LEAF)))
		return -EBADMSG;
	if (last && !search->key)
		return gather_all(search, page, step, depth);

	int r = find_element(page, last ? search->key : search->path->buckets[step], &element);

	if (r < 0)
		return r;
	if (page->flags & FLAG_BRANCH)
		return descend_to(search, element.page, step, depth);
	if (!last)
		return enter(search, &element, step, depth);
	return element.is_bucket ? -ENOENT : gather(search, &element);
}

/* ---- the whole ---- */

static int visit_all(const struct buffer *found, bolt_file_visit *visit, void *ctx)
{
	int r = 0;

	for (size_t at = 0; r == 0 && at < found->len;) {
		size_t lengths[2];

		memcpy(lengths, found->data + at, sizeof lengths);
		at += sizeof lengths;
		r = visit(ctx, found->data + at, lengths[0], found->data + at + lengths[0], lengths[1]);
		at += lengths[0] + lengths[1];
	}
	return r;
}

int bolt_file_each(const struct bolt_file_source *source, const struct bolt_file_path *path, const char *key,
		   bolt_file_visit *visit, void *ctx)
{
	struct search search = { .path = path, .key = key, .found.max = 2 * BOLT_FILE_PAGE_MAX };
	struct state after;
	int r = -EAGAIN;

	for (int i = 0; i < TRIES; i++) {
		search.found.len = 0;
		r = read_state(source, &search.state);
		if (r == 0)
			r = descend_to(&search, search.state.root, 0, 0);

		int again = r == -ENOMEM ? r : read_state(source, &after);

		if (again < 0 || after.txid == search.state.txid) {
			r = again < 0 ? again : r;
			break;
		}
		r = -EAGAIN;
	}
	if (r == 0)
		r = visit_all(&search.found, visit, ctx);
	buffer_release(&search.found);
	return r;
}
