/*
 * thinning.c: slots, gaps and pieces.
 *
 * What is bounded is what counting costs, which is so much for each thing: `most` samples' worth of things for each slot. Each sample owes the time
 * that it may take, and time pays it off; who owes more than a burst may is not counted until it is paid, if it took longer to notice, for longer.
 * So there is no rate to measure and no threshold to be tuned, a thing that comes slowly is always counted, and a burst as a whole, or from its
 * beginning on. Where things come fast for long, that is in every slot until there were `most`:
 *
 *	piece        gap         piece  gap              piece
 *	│■■■■■■■■■│···············│■■■■│·················│■■■■■■■■■■■■■■■...
 *	│◀────────── slot ───────▶│
 *
 * A gap's end is put off or brought forward by up to a half of it; for what is owed it is as if it had not been. Who comes slowly afterwards ends the slot by thinning_next_ns, so that the piece
 * beside a gap is never longer than a slot or the calm before: by its rate the gap is shared out.
 *
 * Rejected: a share of time that is counted, whatever the rate: it wakes somebody up all the time, and takes from quiet times what busy ones cost. To
 * scale by time instead of by things: what happens comes in bursts, and a burst that ends in a gap would be made as long as the gap. To give a gap
 * to the piece before it alone, or after it alone: the same mistake, at one of its ends.
 */
#include "thinning.h"

#include <string.h>

static struct thinning_piece *piece_of(struct thinning *thinning, uint64_t number)
{
	return &thinning->pieces[number % THINNING_PIECES];
}

static const struct thinning_piece *piece_at(const struct thinning *thinning, uint64_t number)
{
	return &thinning->pieces[number % THINNING_PIECES];
}

static uint64_t since(uint64_t now, uint64_t then)
{
	return now > then ? now - then : 0;
}

static uint64_t part(uint64_t value, uint64_t times, uint64_t of)
{
	unsigned __int128 result = (unsigned __int128)value * times / of;

	return result > UINT64_MAX ? UINT64_MAX : (uint64_t)result;
}

/* xorshift64 */
static uint64_t next_random(struct thinning *thinning)
{
	thinning->random ^= thinning->random << 13;
	thinning->random ^= thinning->random >> 7;
	thinning->random ^= thinning->random << 17;
	return thinning->random;
}

/* Half of it to one and a half. */
static uint64_t about(struct thinning *thinning, uint64_t ns)
{
	return ns / 2 + part(ns, next_random(thinning) >> 32, UINT32_MAX);
}

void thinning_init(struct thinning *thinning, const struct thinning_options *options, uint64_t now_ns, uint64_t total)
{
	memset(thinning, 0, sizeof(*thinning));
	thinning->options = *options;
	thinning->on = true;
	thinning->slot_ns = thinning->from_ns = now_ns;
	thinning->total = total;
	thinning->random = 88172645463325252ULL ^ ((uint64_t)options->seed << 8);
}

/* How long so many samples may take. */
static uint64_t worth_ns(const struct thinning *thinning, uint64_t samples)
{
	return part(thinning->options.slot_ns, samples, thinning->options.most);
}

/* What may be owed without a gap. */
static uint64_t credit_ns(const struct thinning *thinning)
{
	return since(worth_ns(thinning, thinning->options.burst), thinning->options.slot_ns);
}

/* What is owed after so many samples of this slot. */
static uint64_t owed_ns(const struct thinning *thinning, uint64_t now_ns, uint64_t samples)
{
	uint64_t worth = worth_ns(thinning, samples), passed_ns = since(now_ns, thinning->slot_ns);

	if (worth > UINT64_MAX - thinning->owed_ns)
		return since(UINT64_MAX, passed_ns);
	return since(thinning->owed_ns + worth, passed_ns);
}

enum thinning_verdict thinning_judge(const struct thinning *thinning, uint64_t now_ns, uint64_t samples)
{
	if (samples >= thinning->options.most && owed_ns(thinning, now_ns, samples) > credit_ns(thinning))
		return THINNING_STOP;
	return since(now_ns, thinning->slot_ns) >= thinning->options.slot_ns ? THINNING_SLOT : THINNING_GO_ON;
}

/* ---- pieces and gaps ---- */

/* Things in a second. */
static double rate_of(const struct thinning_piece *piece)
{
	uint64_t ns = since(piece->to_ns, piece->from_ns);

	return (double)piece->counted * 1e9 / (double)(ns > 0 ? ns : 1);
}

/* What happened before the newest piece, in the gap: to it and to the one before it. */
static void share_gap(struct thinning *thinning)
{
	struct thinning_piece *after = piece_of(thinning, thinning->first + thinning->count - 1);
	struct thinning_piece *before =
		thinning->count > 1 ? piece_of(thinning, thinning->first + thinning->count - 2) : after;
	double rates = rate_of(before) + rate_of(after);
	uint64_t to_before = 0;

	if (before != after && !thinning->settled && rates > 0)
		to_before = (uint64_t)((double)thinning->gap * (rate_of(before) / rates));
	if (to_before > thinning->gap)
		to_before = thinning->gap;
	before->gained += to_before;
	after->gained += thinning->gap - to_before;
	thinning->gap = 0;
	thinning->settled = false;
}

static void end_piece(struct thinning *thinning, uint64_t now_ns, uint64_t total)
{
	if (thinning->count == THINNING_PIECES) {
		thinning->first++;
		thinning->count--;
	}
	*piece_of(thinning, thinning->first + thinning->count++) = (struct thinning_piece){
		.from_ns = thinning->from_ns, .to_ns = now_ns, .counted = since(total, thinning->total)
	};
	share_gap(thinning);
}

/* A piece or a gap begins. */
static void start(struct thinning *thinning, uint64_t now_ns, uint64_t total)
{
	thinning->from_ns = now_ns;
	thinning->total = total;
}

void thinning_begin(struct thinning *thinning, uint64_t now_ns, uint64_t total, uint64_t samples)
{
	if (thinning->on) {
		thinning->owed_ns = owed_ns(thinning, now_ns, samples);
		end_piece(thinning, now_ns, total);
	} else {
		thinning->owed_ns = since(credit_ns(thinning), since(now_ns, thinning->next_ns));
		thinning->gap = since(total, thinning->total);
	}
	thinning->watchful = !thinning->on;
	thinning->on = true;
	thinning->slot_ns = now_ns;
	start(thinning, now_ns, total);
}

void thinning_stop(struct thinning *thinning, uint64_t now_ns, uint64_t total, uint64_t samples)
{
	uint64_t too_much_ns = since(owed_ns(thinning, now_ns, samples), credit_ns(thinning));

	end_piece(thinning, now_ns, total);
	thinning->on = false;
	thinning->next_ns = now_ns + about(thinning, too_much_ns);
	start(thinning, now_ns, total);
}

uint64_t thinning_next_ns(const struct thinning *thinning)
{
	if (!thinning->on)
		return thinning->next_ns;
	return thinning->watchful ? thinning->slot_ns + thinning->options.slot_ns : UINT64_MAX;
}

/* In a gap, what happened in it so far is the last piece's: what comes after it is not known. */
void thinning_settle(struct thinning *thinning, uint64_t now_ns, uint64_t total)
{
	if (thinning->on)
		end_piece(thinning, now_ns, total);
	else
		piece_of(thinning, thinning->first + thinning->count - 1)->gained += since(total, thinning->total);
	thinning->settled |= !thinning->on;
	start(thinning, now_ns, total);
}

/* ---- what it comes to ---- */

/* The first piece that ends after time_ns; first + count: none does. */
static uint64_t search(const struct thinning *thinning, uint64_t time_ns)
{
	uint64_t low = thinning->first, high = thinning->first + thinning->count;

	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		if (piece_at(thinning, middle)->to_ns <= time_ns)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/*
 * A sample from the moment between a piece's end and counting's, or the reverse, is of the piece that is next to it, of which
 * there are two at most.
 */
uint64_t thinning_weigh(const struct thinning *thinning, uint64_t time_ns, uint64_t weight)
{
	uint64_t number = search(thinning, time_ns);
	const struct thinning_piece *piece;

	if (thinning->count == 0 || (number == thinning->first + thinning->count && thinning->on) ||
	    (number == thinning->first && time_ns < piece_at(thinning, number)->from_ns))
		return weight;
	if (number == thinning->first + thinning->count ||
	    (time_ns < piece_at(thinning, number)->from_ns &&
	     time_ns - piece_at(thinning, number - 1)->to_ns < piece_at(thinning, number)->from_ns - time_ns))
		number--;
	piece = piece_at(thinning, number);
	if (piece->counted == 0 || piece->gained == 0)
		return weight;
	return weight + part(weight, piece->gained, piece->counted);
}

void thinning_sum_up(const struct thinning *thinning, uint64_t from_ns, uint64_t to_ns, struct thinning_summary *ret)
{
	struct thinning_summary sum = { 0 };

	for (uint64_t number = search(thinning, from_ns); number < thinning->first + thinning->count; number++) {
		const struct thinning_piece *piece = piece_at(thinning, number);

		if (piece->from_ns > to_ns)
			break;
		sum.counted += piece->counted;
		sum.all += piece->counted + piece->gained;
		if (piece->gained > 0 && sum.since_ns == 0)
			sum.since_ns = piece->from_ns;
	}
	*ret = sum;
}
