// The functions of the time that the plots show, beside what they were before the spike and during it.
import { el, visible } from './text.js';
import * as format from './format.js';
import { onShown, shown } from './shown.js';

const ROWS = 8;
const AROUND = 0.25; // seconds to each side of a moment

// Long names differ at the end as often as at the beginning.
export function cutMiddle(text, most) {
	const whole = visible(text);
	if (whole.length <= most)
		return whole;
	const tail = Math.floor((most - 1) * 0.45);
	return `${whole.slice(0, most - 1 - tail)}\u2026${whole.slice(whole.length - tail)}`;
}

const isMoment = () => shown.kind === 'pointed' || shown.kind === 'kept';

// Whether a sample of stacks is of the time that is shown. Its time is known to a step.
export function isShown(stack, step) {
	const around = isMoment() ? Math.max(AROUND, step) : 0;
	return stack.at !== undefined && stack.at + step > shown.from - around && stack.at < shown.to + around;
}

export function shownLabel() {
	return isMoment() ? `at ${format.offset(shown.from, 2)}` : `${format.offset(shown.from, 2)} \u2026 ${format.offset(shown.to, 2)}`;
}

// By function, what it ran itself, or of memory what was touched below it; all: the sum of all of them.
function sums(stacks, below) {
	const found = new Map();
	let all = 0;
	const add = ({ name, module }, key, self, total) => {
		const entry = found.get(key) ?? { name, module, value: 0, self: 0 };
		entry.self += self;
		entry.value += below ? total : self;
		found.set(key, entry);
	};
	for (const { frames, value } of stacks) {
		const seen = new Set();
		all += value;
		frames.slice(below ? 0 : -1).reverse().forEach((frame, depth) => {
			const key = `${frame.name}\u0000${frame.module}`;
			if (!seen.has(key))
				add(frame, key, depth === 0 ? value : 0, value);
			seen.add(key);
		});
	}
	return { all, found };
}

// How much a name says of where it went, as telling_of in cli/incident/profiles.c has it: 2; 1 of what has none and of how every program
// begins; 0 of what fills memory for others.
const NAMELESS = /^($|\[|(_start|main|start_thread|clone|clone3)$|__libc_start)/;
const FILLERS = /^(__GI_)?((memset|memcpy|memmove|mempcpy|bzero|malloc|calloc|realloc|sysmalloc|_int_malloc|_int_realloc|posix_memalign|aligned_alloc)(@|$)|__(memset|memcpy|memmove|mempcpy|libc_)|operator new)/;
const telling = name => NAMELESS.test(name) ? 1 : FILLERS.test(name) ? 0 : 2;

// Of memory first what the headline names, then the innermost functions on half of it: what touches it is mostly a function of libc.
function ranked({ all, found }, below) {
	const entries = [...found.entries()], heat = ({ value, self }) => value + (below ? self : 0);
	const half = entry => entry.module !== '' && entry.value >= all / 2;
	const most = Math.max(0, ...entries.filter(([, entry]) => half(entry)).map(([, entry]) => telling(entry.name)));
	const inner = ([, entry]) => below && half(entry) && telling(entry.name) === most;
	return [...entries.filter(inner).sort((a, b) => a[1].value - b[1].value || b[1].self - a[1].self),
		...entries.filter(entry => !inner(entry)).sort((a, b) => heat(b[1]) - heat(a[1]))];
}

const shareOf = ({ all, found }, key) => all > 0 ? (found.get(key)?.value ?? 0) / all : 0;
const percent = (sum, share) => sum.all > 0 ? `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %` : '\u2013';

// stacks: of the target. below: with what the functions called. chosen: called with the name of a function that was clicked. what: "CPU time", "new memory".
export function momentPanel({ stacks, step, what, below, chosen }) {
	const timed = stacks.filter(stack => stack.at !== undefined);
	const before = sums(stacks.filter(stack => stack.phase === 'before'), below);
	const during = sums(stacks.filter(stack => stack.phase === 'during'), below);
	const head = el('tr'), body = el('tbody'), said = el('p', { class: 'hint', 'aria-live': 'polite' });
	const cell = (sum, key, bar) => {
		const share = shareOf(sum, key);
		const td = el('td', { class: bar ? 'number bar' : 'number' }, el('span', {}, percent(sum, share)));
		if (bar)
			td.style.setProperty('--share', `${100 * share}%`);
		return td;
	};

	function fill() {
		const then = shown.kind === 'all' ? null : sums(timed.filter(stack => isShown(stack, step)), below);
		const lead = then ?? during;
		const grown = key => shareOf(lead, key) - shareOf(before, key);
		const rows = ranked(lead, below).slice(0, ROWS);
		head.replaceChildren(...[el('th', { scope: 'col' }, 'function'), ...(then ? [el('th', { scope: 'col', class: 'number' }, shownLabel())] : []),
			el('th', { scope: 'col', class: 'number' }, 'during'), el('th', { scope: 'col', class: 'number' }, 'before'),
			...(then ? [] : [el('th', { scope: 'col', class: 'number', title: 'during less before, in points of percent' }, 'points')])]);
		body.replaceChildren(...rows.map(([key, { name, module }]) => el('tr', {},
			el('td', { class: 'name' }, el('button', { type: 'button', class: 'link', title: visible(module ? `${name}, ${module}` : name), click: () => chosen(name) },
				cutMiddle(name, 38))),
			...(then ? [cell(then, key, true), cell(during, key), cell(before, key)] : [cell(during, key, true), cell(before, key)]),
			...(then ? [] : [el('td', { class: 'number' }, before.all > 0 ? `${grown(key) > 0 ? '+' : grown(key) < 0 ? '\u2212' : ''}${Math.abs(100 * grown(key)).toFixed(1)}` : '\u2013')]))));
		said.textContent = rows.length ? '' : then ? 'There are no stacks of that time.' : 'There are no stacks of the spike.';
		said.hidden = rows.length > 0;
	}

	onShown(fill);
	fill();
	return el('aside', { id: 'moment', 'aria-label': `Functions by ${what}` }, el('h3', {}, `Where its ${what} went`),
		el('table', {}, el('thead', {}, head), body), said,
		el('p', { class: 'hint' }, timed.length ? `Shares of the target\u2019s own${below ? ', with what was called' : ''}. Point at the plot for the functions of a moment, click to keep it; drag for those of a stretch.`
			: 'Shares of the target\u2019s own.'));
}
