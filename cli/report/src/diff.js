// The page of spikewatch diff: two incidents, or what was earlier and later of one. Everything is in data.diff; there are no files.
import { el, unescaped, visible } from './text.js';
import * as format from './format.js';
import { data } from './embedded.js';
import { table } from './tables.js';
import { Flame } from './flame.js';
import { treeOfPair } from './stacks.js';
import { section } from './sections.js';

const { diff } = data;
const stackLabels = diff?.b ? { before: 'A', during: 'B' } : { before: 'before', during: 'during' };
const lookLabels = diff?.b ? { before: 'A', during: 'B' } : { before: 'first', during: 'second' };

export function head() {
	const name = incident => unescaped(incident.id || 'an incident without a name');
	const title = diff.b ? `From ${name(diff.a)} to ${name(diff.b)}` : `Earlier and later in ${name(diff.a)}`;
	document.title = `Difference: ${visible(title)}`;
	document.querySelector('.brand').textContent = 'Spikewatch diff';
	document.getElementById('heading').replaceChildren(...el('h1', {}, title).childNodes);
	document.querySelector('footer p').textContent = 'Written by spikewatch diff. This page fetches nothing.';
	if (diff.damaged)
		document.getElementById('story').before(el('p', { class: 'notice' }, 'Parts of it are damaged. What could be read is shown.'));
}

function flame(id, title, text, unit) {
	if (!text)
		return null;
	const made = new Flame({ title, unit, tree: treeOfPair(text), phases: true, labels: stackLabels });
	const box = section(id, title, el('p', { class: 'hint' },
		'Callers are above callees. In the difference, red has grown and blue has shrunk, as shares of all samples of their side.'), made.element);
	box.start = () => made.start();
	return box;
}

const signed = (value, text) => value > 0 ? `+${text}` : text;
const points = value => signed(value, value.toFixed(1));
const fileOf = path => path?.split('/').pop() ?? '';
const only = (row, labels) => row.a && row.b ? '' : `only ${row.a ? labels.before : labels.during}`;

// Values are put into the row itself: a table sorts by them. measures: [key, title, text of a value, text of a change].
function flatten(row, measures, growth) {
	const flat = { ...row };
	for (const [key] of measures)
		Object.assign(flat, { [`a_${key}`]: row.a?.[key] ?? '', [`b_${key}`]: row.b?.[key] ?? '', [`d_${key}`]: row[growth][key] });
	return flat;
}

function valueColumns(measures, labels) {
	const side = (letter, label) => measures.map(([key, title, text]) => ({ key: `${letter}_${key}`, title: `${title} ${label}`.trim(), number: true,
		text: row => row[`${letter}_${key}`] === '' ? '\u2013' : text(row[`${letter}_${key}`], letter) }));
	const change = measures.map(([key, title, , text]) => ({ key: `d_${key}`, title: `${title} change`.trim(), number: true, text: row => text(row[`d_${key}`]) }));
	return [...side('a', labels.before), ...side('b', labels.during), ...change];
}

function tableOf(found, { caption, names, measures, labels, growth }) {
	if (!found)
		return null;
	const rows = found.rows.map(row => flatten(row, measures, growth)).sort((x, y) => rank(y, measures) - rank(x, measures));
	if (!rows.length)
		return null;
	const columns = [...names, { key: 'only', title: '', text: row => only(row, labels) }, ...valueColumns(measures, labels)];
	return table({ caption, rows, columns });
}

const rank = (row, measures) => Math.abs(measures.reduce((sum, [key]) => sum + row[`d_${key}`], 0));
const named = (key, text) => ({ key, title: key, text: row => (text ?? (value => value))(unescaped(row[key] ?? '')) || '?' });

function shares(found, caption, names, keys) {
	const text = (value, letter) => format.share(value, found.all[letter]);
	return tableOf(found, { caption, names, labels: stackLabels, growth: 'growth_points', measures: keys.map(([key, title]) => [key, title, text, points]) });
}

function functions() {
	const names = [named('function'), named('module', fileOf)], keys = [['self', 'self'], ['total', 'total']];
	const content = [shares(diff.functions, 'By CPU: shares of all samples, changes in points', names, keys),
		shares(diff.memory_functions, 'By memory touched for the first time: shares, changes in points', names, keys)].filter(Boolean);
	return content.length ? section('functions', 'Functions', content) : null;
}

function threads() {
	const names = [named('thread'), named('process')], keys = [['self', '']], percent = value => format.quantity(value, 'percent');
	const content = [shares(diff.stack_threads, 'By their call stacks: shares of all CPU samples', names, keys),
		shares(diff.memory_threads, 'By their call stacks: shares of the memory touched', names, keys),
		tableOf(diff.threads, { caption: 'By name: CPU within about a second, and how many', names: [named('thread')], labels: lookLabels, growth: 'growth',
			measures: [['cpu_percent', 'CPU', percent, value => signed(value, percent(value))], ['count', 'number', String, value => signed(value, String(value))]] }),
	].filter(Boolean);
	return content.length ? section('threads', 'Threads', content) : null;
}

function mappings() {
	const { bytes } = format, change = value => signed(value, bytes(value));
	const content = tableOf(diff.mappings, { caption: 'Memory by what is mapped', names: [named('mapping'), named('permissions')], labels: lookLabels,
		growth: 'growth', measures: [['rss_bytes', 'resident', bytes, change], ['swap_bytes', 'swapped', bytes, change]] });
	return content ? section('growth', 'What grew', content) : null;
}

function notes() {
	return diff.notes.length ? section('notes', 'What is not compared', el('ul', {}, diff.notes.map(note => el('li', {}, note)))) : null;
}

export const sections = [
	() => flame('cpu-flame', 'Flame graph of CPU', diff.cpu_stacks, 'samples'),
	() => flame('memory-flame', 'Flame graph of memory touched', diff.memory_stacks, 'bytes'),
	functions, threads, mappings, notes,
];
