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

// Memory is touched by a copying or clearing function as a rule, often of a library without names: who called it is asked for.
const innermostNamed = frames => frames.findLast(({ name }) => name && !name.startsWith('[')) ?? frames.at(-1);

// By function, what it ran itself; all: the sum of all of them.
function sums(stacks, named) {
	const found = new Map();
	let all = 0;
	for (const { frames, value } of stacks) {
		const leaf = named ? innermostNamed(frames) : frames.at(-1);
		const key = leaf ? `${leaf.name}\u0000${leaf.module}` : '';
		all += value;
		if (!leaf)
			continue;
		const entry = found.get(key) ?? { name: leaf.name, module: leaf.module, value: 0 };
		entry.value += value;
		found.set(key, entry);
	}
	return { all, found };
}

const shareOf = ({ all, found }, key) => all > 0 ? (found.get(key)?.value ?? 0) / all : 0;
const percent = (sum, share) => sum.all > 0 ? `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %` : '\u2013';

// stacks: of the target. chosen: called with the name of a function that was clicked. what: "CPU time", "new memory".
// named: functions without a name count for who called them.
export function momentPanel({ stacks, step, what, named, chosen }) {
	const timed = stacks.filter(stack => stack.at !== undefined);
	const before = sums(stacks.filter(stack => stack.phase === 'before'), named);
	const during = sums(stacks.filter(stack => stack.phase === 'during'), named);
	const head = el('tr'), body = el('tbody'), said = el('p', { class: 'hint', 'aria-live': 'polite' });
	const cell = (sum, key, bar) => {
		const share = shareOf(sum, key);
		const td = el('td', { class: bar ? 'number bar' : 'number' }, el('span', {}, percent(sum, share)));
		if (bar)
			td.style.setProperty('--share', `${100 * share}%`);
		return td;
	};

	function fill() {
		const then = shown.kind === 'all' ? null : sums(timed.filter(stack => isShown(stack, step)), named);
		const lead = then ?? during;
		const grown = key => shareOf(lead, key) - shareOf(before, key);
		const rows = [...lead.found.entries()].sort((a, b) => b[1].value - a[1].value).slice(0, ROWS);
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
		el('p', { class: 'hint' }, timed.length ? 'Shares of the target\u2019s own. Point at the plot for the functions of a moment, click to keep it; drag for those of a stretch.'
			: 'Shares of the target\u2019s own.'));
}
