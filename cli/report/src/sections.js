// One function per section of the page. Each returns its element, or null without content.
import { el, unescaped, visible } from './text.js';
import * as format from './format.js';
import { data, bytesOf, has, info, names, textOf } from './embedded.js';
import { parse, table } from './tables.js';
import { plots } from './plots.js';
import { Flame } from './flame.js';
import { load } from './pprof.js';
import { treeOf, treeOfFolded } from './stacks.js';
import { isShown, momentPanel, shownLabel } from './moment.js';
import { onShown, shown } from './shown.js';

const incident = data.incident;

// Sections of memory come first then.
export const ofMemory = /^memory|^faults$/.test(incident?.rule.metric ?? '');
const inOrder = (cpu, memory) => (ofMemory ? [memory, cpu] : [cpu, memory]).filter(Boolean);

export function section(id, title, ...content) {
	return el('section', { id, 'aria-labelledby': `${id}-title` }, el('h2', { id: `${id}-title` }, title), content);
}

// ---- the rule ----

function definitions(pairs) {
	return el('dl', {}, pairs.filter(([, value]) => value !== null && value !== undefined && value !== '')
		.map(([name, value]) => el('div', { class: String(value).length > 32 ? 'wide' : null }, el('dt', {}, name), el('dd', {}, value))));
}

function ofWhat(rule) {
	return { limit: 'of the limit', core: 'of one core', machine: 'of the machine' }[rule.of] ?? '';
}

function why(rule) {
	const value = amount => format.quantity(amount, rule.unit);
	if (incident.kind === 'manual')
		return 'No rule fired: this incident was asked for by hand.';
	if (incident.kind === 'recovered')
		return 'No rule fired: the daemon died, and this is what its ring still held.';
	if (rule.value === null || data.threshold === null)
		return 'What the rule saw is not known.';
	if (rule.reason === 'above-average')
		return `It fired because ${value(rule.value)} is not below ${value(data.threshold)}, which is ${rule.delta_percent} % above the average of ${value(rule.average)} before.`;
	return `It fired because ${value(rule.value)} is above the threshold, ${value(data.threshold)}.`;
}

function mergedTable() {
	if (!incident.merged?.length)
		return null;
	const rows = incident.merged.map(firing => ({ ...firing, at: (firing.wall_ns - incident.time.wall_ns) / 1e9 }));
	return table({
		caption: `${incident.merged_total} more on the same target while this incident was open`, rows,
		columns: [
			{ key: 'at', title: 'when', number: true, text: row => format.offset(row.at, 2) },
			{ key: 'rule', title: 'rule' },
			{ key: 'value', title: 'value', number: true, text: row => row.value === null ? '\u2013' : format.count(row.value) },
		],
	});
}

export function rule() {
	const r = incident.rule, value = amount => amount === null || amount === undefined ? null : format.quantity(amount, r.unit);
	const time = ns => ns ? format.duration(ns) : null;
	const rows = incident.kind === 'rule' ? [
		['Rule', r.name], ['Metric', `${r.metric} ${ofWhat(r)}`.trim()], ['Value', value(r.value)], ['Threshold', value(r.threshold)],
		['Above the average by', r.delta_percent === null ? null : `${r.delta_percent} %`], ['Average before', value(r.average)],
		['Minimum', value(r.minimum)], ['Maximum', value(r.maximum)], ['Window', time(r.window_ns)], ['Has to hold for', time(r.for_ns)],
		['Was above, in all', data.above_ns === null ? null : format.duration(data.above_ns)],
		['Severity', r.severity ? r.severity.toFixed(2) : null], ['Cooldown', time(r.cooldown_ns)], ['Armed again', r.rearm],
		['Fired so far', r.fired ? String(r.fired) : null],
	] : [];
	return section('rule', 'Why it fired', el('p', {}, why(r)), definitions(rows), mergedTable());
}

// ---- over time ----

function moments() {
	const main = { at: 0, main: true, name: incident.kind === 'recovered' ? 'the daemon died' : incident.kind === 'manual' ? 'asked for' : 'fired' };
	const merged = (incident.merged ?? []).map(firing => ({ at: (firing.wall_ns - incident.time.wall_ns) / 1e9, name: visible(firing.rule) }));
	const gone = incident.coverage.target_gone_ns;
	return [...merged, ...(gone === null ? [] : [{ at: gone / 1e9, name: 'gone' }]), main];
}

const flames = new Map();

// A function that was clicked: where it is in the flame graph.
function findInFlame(id, name) {
	flames.get(id)?.find(name);
	document.getElementById(id)?.scrollIntoView();
}

async function panel() {
	const [id, files, what] = ofMemory ? ['memory-flame', memoryFiles, 'new memory'] : ['cpu-flame', cpuFiles, 'CPU time'];
	const found = await stacksOf(...files);
	return found?.stacks?.length ? momentPanel({ stacks: found.stacks.filter(stack => stack.own), step: found.step, what, below: ofMemory, chosen: name => findInFlame(id, name) }) : null;
}

export async function time() {
	if (!data.plots?.length)
		return section('time', 'Over time', el('p', { class: 'empty' }, 'There are no samples.'));
	const pictures = el('div', { class: 'pictures' });
	const box = section('time', 'Over time', el('div', { class: 'first' }, pictures, await panel()),
		el('p', { class: 'hint' }, 'Drag over a plot, or use the keys +, \u2212, 0 and the arrows: all plots show the same time. 0 is when it fired. The light area, each sample, may exceed a limit: the kernel counts CPU time by its tick.'));
	// Plots need a width: they are made once the section is in the page.
	box.start = () => plots(data, { window: incident.kind === 'rule' ? incident.rule.window_ns / 1e9 : 0, moments: moments(),
		holes: (data.holes ?? []).map(hole => ({ from: hole.from_ns / 1e9, to: hole.to_ns / 1e9, cpu: hole.cpu, suspended_ns: hole.suspended_ns })) }, pictures);
	return box;
}

// ---- flame graphs ----

const cpuFiles = ['cpu.pb.gz', 'cpu.folded', 'nanoseconds'], memoryFiles = ['memory.pb.gz', 'memory.folded', 'bytes'];
const loaded = new Map();

// { tree, unit, phases, stacks }: of the profile if it can be read, else of the folded stacks.
function stacksOf(profile, folded, unit) {
	if (!loaded.has(profile))
		loaded.set(profile, loadStacks(profile, folded, unit));
	return loaded.get(profile);
}

async function loadStacks(profile, folded, unit) {
	let trouble = '';
	if (has(profile) && typeof DecompressionStream === 'function') {
		try {
			const { unit: own, ...rest } = await load(bytesOf(profile), incident.time.wall_ns);
			return { ...rest, unit: own || unit, phases: true, trouble };
		} catch (error) {
			trouble = `${profile} cannot be read (${error.message}); `;
		}
	} else if (has(profile)) {
		trouble = 'This browser cannot unpack the profile; ';
	}
	if (!has(folded))
		return trouble ? { trouble: `${trouble}there are no folded stacks either.` } : null;
	return { tree: treeOfFolded(textOf(folded)), unit: 'count', phases: false,
		trouble: trouble && `${trouble}shown are the folded stacks, before and during together.` };
}

async function flameSection(id, title, files, text) {
	const found = await stacksOf(...files);
	if (!found)
		return null;
	const box = section(id, title, el('p', { class: 'hint' }, text), found.trouble ? el('p', { class: 'notice' }, found.trouble) : null);
	if (!found.tree && !found.stacks)
		return box;
	const { stacks, step } = found;
	const threads = el('input', { type: 'checkbox', change: () => flame.setTree(tree(stacks)) });
	const machine = el('input', { type: 'checkbox', change: () => flame.setTree(tree(stacks)) });
	const tree = of => treeOf(machine.checked ? of : of.filter(stack => stack.own), threads.checked, incident.target.pid);
	const flame = new Flame({ title, ...found, tree: found.tree ?? tree(stacks),
		shownTree: stacks?.some(stack => stack.at !== undefined) ? () => tree(stacks.filter(stack => isShown(stack, step)).map(stack => ({ ...stack, phase: 'during' }))) : undefined });
	const option = (check, label) => flame.search.before(el('label', { class: 'check' }, check, label));
	if (stacks?.some(stack => stack.own && stack.thread !== ''))
		option(threads, 'Threads apart');
	if (stacks?.some(stack => !stack.own))
		option(machine, 'Other processes too');
	flames.set(id, flame);
	box.append(flame.element);
	box.start = () => flame.start();
	// While the pointer moves over a plot the graph stays: a moment has to be chosen.
	onShown(() => {
		if (shown.kind !== 'pointed')
			flame.offerShown(shown.kind !== 'all', `Time shown: ${shownLabel()}`);
	});
	return box;
}

export const cpuFlame = () => flameSection('cpu-flame', 'Flame graph of the spike', cpuFiles,
	'The target\u2019s CPU time by call stack: callers are above callees; the wider, the more. Before is what was recorded before the rule\u2019s window, during is from there on.');

export const memoryFlame = () => flameSection('memory-flame', 'Flame graph of the memory growth', memoryFiles,
	'Memory that the target touched for the first time, by the call stack that did it.');

// ---- tables ----

function read(name) {
	return has(name) ? parse(textOf(name)) : { columns: [], rows: [], remarks: [] };
}

function remarks(list) {
	return list.length ? el('p', { class: 'remarks' }, list.join('. ')) : null;
}

const moduleOf = row => row.module?.split('/').pop() ?? '';

// { before, during } out of the remark "samples before, during: 31, 66", or "own samples before, during: 30, 60".
function sumsOf(parsed, own = '') {
	const match = parsed.remarks.map(text => new RegExp(`^${own}(samples|bytes) before, during: (\\d+), (\\d+)$`).exec(text)).find(Boolean);
	return match ? { unit: match[1], before: Number(match[2]), during: Number(match[3]) } : own ? sumsOf(parsed) : { unit: 'samples', before: 0, during: 0 };
}

const isNeighbour = row => row.module === '(another process)';

// Of a row of the target the share of what is its own, of other processes that of all.
function sharesOf(parsed) {
	const own = sumsOf(parsed, 'own '), all = sumsOf(parsed);
	return [['self_before', 'self before'], ['total_before', 'total before'], ['self_during', 'self during'], ['total_during', 'total during']]
		.map(([key, title]) => {
			const phase = key.endsWith('before') ? 'before' : 'during';
			const sum = row => (isNeighbour(row) ? all : own)[phase];
			return { key, title, number: true, text: row => format.share(Number(row[key]), sum(row)), bar: row => sum(row) > 0 ? Number(row[key]) / sum(row) : 0 };
		});
}

// wanted: which rows. Of the target there are functions, of other processes their names.
function functionsTable(name, caption, wanted, what = 'function') {
	const parsed = read(name);
	const rows = parsed.rows.filter(row => row.function && wanted(row));
	if (!rows.length)
		return null;
	const [selfBefore, totalBefore, selfDuring, totalDuring] = sharesOf(parsed);
	const plain = [{ key: 'function', title: what }, { ...totalDuring, title: 'during' }, { ...totalBefore, title: 'before' }];
	const whole = [{ key: 'function', title: what }, selfDuring, totalDuring, selfBefore, totalBefore, { key: 'module', title: 'in', text: moduleOf },
		{ key: 'top_thread', title: 'busiest thread', text: row => row.top_thread ? `${row.top_thread}${row.top_tid ? ` (${row.top_tid})` : ''}` : '' }];
	return el('div', {}, table({ caption, rows, columns: what === 'function' ? whole : plain }), remarks(parsed.remarks.filter(text => /more functions$/.test(text))));
}

const isOwn = row => !isNeighbour(row);

export function functions() {
	const memory = functionsTable('memory-functions.tsv', 'By memory touched for the first time: shares of the target\u2019s own', isOwn);
	if (memory && data.memory_change)
		memory.append(el('p', {}, data.memory_change));
	const content = inOrder(functionsTable('functions.tsv', 'By CPU time: shares of the target\u2019s own samples', isOwn), memory);
	return content.length ? section('functions', 'Functions', content) : null;
}

// ---- functions without names ----

// Why a function has no name, by what the frame is called then (lib/profile/profile.c), and what would give it one.
function whyNameless({ name, module }) {
	const file = module.split('/').pop();
	const found = data.packages?.[module.replace(/ \(file replaced\)$/, '')];
	const symbols = found ? `the debug symbols of package ${found} (${found}-dbgsym or ${found}-dbg)` : 'its debug symbols, installed or by debuginfod';
	if (module.endsWith('(file replaced)'))
		return [file, 'the file was replaced while the program ran', 'a restart of the program: then file and process agree'];
	if (module === '' || module === '[anon]' || module.startsWith('[anon') || module.startsWith('//anon'))
		return ['code without a file', 'code that was made at run time, or a caller that could not be found', 'a perf map: node --perf-basic-prof, python3 -X perf, a perf-map agent for Java; or a build with frame pointers'];
	if (name === '[stack cut]')
		return null;
	if (module.startsWith('['))
		return [module, 'the kernel keeps its symbols to itself', 'kernel.kptr_restrict 0 or 1, and the daemon as root'];
	return [file, name.includes('+0x') ? 'it was stripped: only where its functions begin is known' : 'its symbols could not be read', symbols];
}

export async function nameless() {
	const found = await stacksOf(...cpuFiles);
	const own = (found?.stacks ?? []).filter(stack => stack.own && stack.phase === 'during');
	const all = own.reduce((sum, stack) => sum + stack.value, 0);
	const rows = new Map();
	for (const { frames, value } of own) {
		const leaf = frames.at(-1);
		const why = leaf?.name.startsWith('[') && leaf.name !== '[no stack]' ? whyNameless(leaf) : null;
		if (!why)
			continue;
		const row = rows.get(leaf.module) ?? { file: why[0], why: why[1], help: why[2], build_id: found.buildIds.get(leaf.module) ?? '', share: 0 };
		row.share += value / all;
		rows.set(leaf.module, row);
	}
	const shown_ = [...rows.values()].filter(row => row.share >= 0.01).sort((a, b) => b.share - a.share);
	const advice = data.advice ? el('p', {}, `${data.advice}.`) : null;
	if (!shown_.length)
		return advice ? section('nameless', 'Functions without names', advice) : null;
	const ids = shown_.filter(row => row.build_id && row.file !== 'code without a file');
	return section('nameless', 'Functions without names', / is stripped; /.test(data.advice) ? null : advice, table({
		caption: 'What ran without a name, in shares of the target\u2019s CPU time during the spike', rows: shown_,
		columns: [{ key: 'file', title: 'in' }, { key: 'share', title: 'share', number: true, text: row => format.share(row.share, 1), bar: row => row.share },
			{ key: 'why', title: 'why' }, { key: 'help', title: 'what would help' }],
	}), ids.length ? el('details', {}, el('summary', {}, 'From a debuginfod server, as DEBUGINFOD_URLS names one'),
		el('pre', { tabindex: 0 }, ids.map(row => `debuginfod-find debuginfo ${row.build_id}   # ${visible(row.file)}`).join('\n'))) : null,
	el('p', { class: 'hint' }, 'Names are looked up when an incident is sealed: what is installed now helps the next one.'));
}

function stackThreads(name, caption) {
	const parsed = read(name);
	const rows = parsed.rows.filter(row => !row.function && row.top_thread !== undefined && row.top_tid && isOwn(row));
	if (!rows.length)
		return null;
	const [, before, , during] = sharesOf(parsed);
	rows.sort((a, b) => Number(b.total_during) - Number(a.total_during));
	return el('div', {}, table({
		caption, rows, shown: 8,
		columns: [{ key: 'top_thread', title: 'thread', text: row => row.top_thread || '?' }, { key: 'top_tid', title: 'tid', number: true },
			{ key: 'top_process', title: 'process', text: row => row.top_process || '?' }, { ...before, title: 'before' }, { ...during, title: 'during' }],
	}), remarks(parsed.remarks.filter(text => /more threads$/.test(text))));
}

const threadColumns = [
	{ key: 'name', title: 'thread' }, { key: 'tid', title: 'tid', number: true }, { key: 'pid', title: 'pid', number: true }, { key: 'state', title: 'state' },
	{ key: 'cpu_percent', title: 'CPU', number: true, bar: row => Number(row.cpu_percent) / 100 }, { key: 'cpu_ms', title: 'CPU time', number: true },
	{ key: 'wait_ms', title: 'waited for a CPU', number: true }, { key: 'off_ms', title: 'asleep', number: true },
	{ key: 'user_ms', title: 'user', number: true }, { key: 'system_ms', title: 'system', number: true }, { key: 'since_ms', title: 'within', number: true },
	{ key: 'remark', title: '' },
];

function threadsTable(name, caption) {
	const { rows, columns } = read(name);
	return rows.length ? table({ caption, rows, columns: threadColumns.filter(column => columns.includes(column.key)) }) : null;
}

function laterBy(name) {
	const capture = incident.captures.find(entry => entry.file === name);
	return capture?.at_ns === undefined ? '' : `, ${format.offset(capture.at_ns / 1e9, 2)}`;
}

export function threads() {
	const content = [threadsTable('threads.tsv', `When it fired${laterBy('threads.tsv')}`),
		threadsTable('threads.again.tsv', `A second snapshot${laterBy('threads.again.tsv')}`),
		...inOrder(stackThreads('functions.tsv', 'By their call stacks: shares of the target\u2019s own CPU samples'),
			stackThreads('memory-functions.tsv', 'By their call stacks: shares of the memory touched'))].filter(Boolean);
	return content.length ? section('threads', 'Threads', content) : null;
}

const mapColumns = [
	{ key: 'mapping', title: 'mapping' }, { key: 'permissions', title: '' }, { key: 'rss_growth_bytes', title: 'grown by', number: true },
	{ key: 'rss_bytes', title: 'resident', number: true }, { key: 'private_dirty_bytes', title: 'private', number: true },
	{ key: 'swap_bytes', title: 'swap', number: true }, { key: 'pid', title: 'pid', number: true },
];

function mapsTable(name, caption) {
	const { rows: all, columns, remarks: said } = read(name);
	const rows = all.filter(row => row.rss_growth_bytes !== '+0');
	if (!rows.length)
		return null;
	const still = all.length - rows.length;
	const filled = mapColumns.filter(({ key }) => columns.includes(key) && rows.some(row => row[key] !== ''));

	return el('div', {}, table({ caption, rows, columns: filled, shown: 8 }), still ? el('p', { class: 'remarks' }, `${format.count(still)} did not grow`) : null,
		remarks(said.filter(text => text.startsWith('process') || text.startsWith('cut'))));
}

// What has changed between two snapshots of the mappings.
function growthTable() {
	const key = row => [row.pid, row.mapping, row.permissions].join('\u0000');
	const first = new Map(read('smaps.tsv').rows.map(row => [key(row), row]));
	const rows = read('smaps.again.tsv').rows.map(row => {
		const then = first.get(key(row));
		return { ...row, grown_bytes: String(Number(row.rss_bytes) - Number(then?.rss_bytes ?? 0)) };
	}).filter(row => row.grown_bytes !== '0').sort((a, b) => Number(b.grown_bytes) - Number(a.grown_bytes));
	if (!has('smaps.again.tsv'))
		return null;
	if (!rows.length)
		return el('p', {}, 'Between the two snapshots nothing has grown or shrunk.');
	return table({
		caption: `Between the two snapshots${laterBy('smaps.again.tsv')}`, rows, shown: 8,
		columns: [mapColumns[0], mapColumns[1], { key: 'grown_bytes', title: 'changed by', number: true }, mapColumns[3], mapColumns[6]],
	});
}

export function growth() {
	const content = [mapsTable('smaps.tsv', `Memory by what is mapped, when it fired${laterBy('smaps.tsv')}`), growthTable()].filter(Boolean);
	return content.length ? section('growth', 'What grew', content) : null;
}

// The processes of a target that is not one itself.
export function members() {
	const rows = data.members ?? [];
	return rows.length ? section('members', 'Members', table({
		caption: `When it fired: the ${ofMemory ? 'largest' : 'busiest'} first`, rows,
		columns: [
			{ key: 'pid', title: 'pid', number: true },
			{ key: 'cpu_percent', title: 'CPU', number: true, text: row => row.cpu_percent === null ? '\u2013' : `${row.cpu_percent.toFixed(1)} %`, bar: row => (row.cpu_percent ?? 0) / 100 },
			{ key: 'rss_bytes', title: 'memory', number: true, text: row => row.rss_bytes === null ? '\u2013' : format.bytes(row.rss_bytes) },
			{ key: 'cmdline', title: 'command', text: row => unescaped(row.cmdline) || 'not known' },
		],
	})) : null;
}

export function targets() {
	if (!data.everything || !data.targets.length)
		return null;
	const most = Math.max(...data.targets.map(target => target.cpu_cores ?? 0));
	return section('targets', 'Targets by their peaks', table({
		caption: `${data.targets.length} of ${data.targets_total} targets; CPU over 100 ms or more`, rows: data.targets,
		columns: [
			{ key: 'name', title: 'target', text: row => row.name || '?' },
			{ key: 'cpu_cores', title: 'CPU', number: true, text: row => format.quantity(row.cpu_cores, 'cores'), bar: row => most ? row.cpu_cores / most : 0 },
			{ key: 'memory_bytes', title: 'memory', number: true, text: row => format.quantity(row.memory_bytes, 'bytes') },
		],
	}));
}

// ---- the system ----

// system.txt: "# heading", then its lines; tables have tabs.
function blocksOf(text) {
	const blocks = [];
	for (const line of text.split('\n')) {
		if (line.startsWith('#'))
			blocks.push({ title: line.slice(1).trim(), lines: [] });
		else if (line !== '')
			(blocks.at(-1) ?? (blocks.push({ title: '', lines: [] }), blocks[0])).lines.push(line);
	}
	return blocks;
}

function block({ title, lines }) {
	if (lines[0]?.startsWith('pid\t')) {
		const { rows, columns } = parse(lines.join('\n'));
		return table({ caption: title, rows, columns: columns.map(key => ({ key, title: key.replace(/_/g, ' ').replace(/ (ms|percent|bytes)$/, ''),
			number: key !== 'name' && key !== 'state', bar: key === 'cpu_percent' ? row => Number(row.cpu_percent) / 100 : undefined })) });
	}
	return el('div', { class: 'block' }, el('h3', {}, title), el('pre', { tabindex: 0 }, lines.join('\n')));
}

export function system() {
	const { limits, machine } = incident;
	const limit = (value, isMachine, from, unit) => `${format.quantity(value, unit)}${isMachine ? ', the machine' : from ? `, ${from}` : ''}`;
	const about = definitions([
		['CPU limit', limits.cpu_ns_per_second === null ? null : limit(limits.cpu_ns_per_second / 1e9, limits.cpu_is_machine, limits.cpu_from, 'cores')],
		['Memory limit', limits.memory_bytes === null ? null : limit(limits.memory_bytes, limits.memory_is_machine, limits.memory_from, 'bytes')],
		['Host', machine.hostname], ['Kernel', machine.kernel], ['Command', incident.target.cmdline], ['cgroup', incident.target.cgroup],
	]);
	const blocks = has('system.txt') ? blocksOf(textOf('system.txt')) : [];
	const tables = blocks.filter(entry => entry.lines[0]?.startsWith('pid\t')), texts = blocks.filter(entry => !tables.includes(entry));
	const neighbours = inOrder(functionsTable('functions.tsv', 'Other processes by CPU time: shares of all samples', isNeighbour, 'process'),
		functionsTable('memory-functions.tsv', 'Other processes by memory touched: shares of all', isNeighbour, 'process'));
	return section('system', 'The machine and its neighbours', about, el('div', { class: 'blocks' }, neighbours), tables.map(block), el('div', { class: 'blocks' }, texts.map(block)));
}

// ---- what was lost ----

function losses() {
	const c = incident.coverage, list = [];
	const say = (amount, text) => amount > 0 && list.push(`${format.count(amount)} ${text}`);
	if (data.damaged)
		list.push(`the incident is damaged: ${data.why}`);
	const { samples } = data;
	if (samples.error)
		list.push(`the samples: ${samples.error}`);
	if (samples.rows_lost || samples.damaged_lines)
		list.push(`${format.count(samples.rows_lost)} rows to damage of the file of samples`);
	else if (!samples.complete)
		list.push('the end of the samples, which were cut off');
	if (c.capture_rate > 0 && c.capture_rate < 0.99)
		list.push(`${(100 - 100 * c.capture_rate).toFixed(1)} % of the ticks`);
	if (c.want_before_ns < 86400e9 && c.got_from_ns > 1e9 - c.want_before_ns)
		list.push(`the first ${format.duration(c.got_from_ns + c.want_before_ns)}, before the recorder was there`);
	say(c.gaps - (c.holes ?? 0), `${c.gaps - (c.holes ?? 0) === 1 ? 'gap' : 'gaps'} in the samples, with ${format.count(c.lost_pages)} pages of the ring`);
	if (c.holes > 0)
		list.push(`${format.count(c.holes)} ${c.holes === 1 ? 'hole' : 'holes'} in the sampling, ${format.count(c.missed_slots)} slots, ${
			format.duration(c.unsampled_ns)} in all, the longest ${format.duration(c.longest_hole_ns)}: what was used in them is known as a sum at most`);
	if (c.suspends > 0)
		list.push(`while the machine was suspended${c.suspends > 1 ? ` ${format.count(c.suspends)} times` : ''}, for ${
			format.duration(c.suspended_ns)}: nothing ran, and all times here leave that out`);
	if (c.onset_late_ns > 0)
		list.push(`when a spike began, to ${format.duration(c.onset_late_ns)}: while the target slept it was looked at less often, and what it used in the first ${
			format.duration(c.onset_late_ns)} after that is drawn evenly over that time`);
	if (c.cpu_late_ns > 0)
		list.push(`CPU time where it was used: that of members that had ended was added up to ${format.duration(c.cpu_late_ns)} late, too low before and too high there`);
	say(c.samples_dropped, 'samples for which there was no room');
	if (samples.cut)
		list.push('samples that are not drawn: there are too many, or their times make no sense');
	for (const capture of incident.captures) {
		if (capture.status !== 'ok')
			list.push(`${capture.name}: ${capture.status}, ${capture.why}`);
		else if (capture.why)
			list.push(`${capture.file || capture.name}: ${capture.why}`);
	}
	for (const absent of data.absent)
		list.push(`${absent.name} (${format.bytes(absent.bytes)}) is not in this page: ${absent.why}`);
	return list;
}

export function lost() {
	const c = incident.coverage, cost = incident.cost;
	const list = losses();
	return section('lost', 'What was lost',
		list.length ? el('ul', {}, list.map(text => el('li', {}, text))) : el('p', {}, 'Nothing was lost.'),
		definitions([
			['Recorded', `${format.offset(c.got_from_ns / 1e9, 2)} \u2026 ${format.offset(c.got_to_ns / 1e9, 2)}`],
			['Ticks', `${format.count(c.ticks_got)} of ${format.count(c.ticks_expected)}`],
			['Capture rate', `${(100 * c.capture_rate).toFixed(2)} %`], ['Samples', format.count(c.samples)],
			['Sampled every', format.duration(cost.interval_ns)], ['Late on average', format.duration(cost.mean_sleep_error_ns)],
			['Recording cost', `${cost.sampler_cpu_percent.toFixed(2)} % of one core`], ['Slots missed', format.count(cost.missed_slots)],
		]));
}

// ---- files ----

function save(name) {
	const link = el('a', { href: URL.createObjectURL(new Blob([bytesOf(name)])), download: name });
	link.click();
	setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

const SHOWN_BYTES = 200000;

function file(name) {
	const { bytes, crc32 } = info(name);
	const line = el('span', { class: 'file' }, el('code', {}, name), el('span', { class: 'size' }, format.bytes(bytes)),
		el('span', { class: 'sum' }, `CRC-32 ${crc32}`), el('button', { type: 'button', 'aria-label': `Save ${visible(name)}`, click: () => save(name) }, 'Save'));
	if (!/\.(txt|json|tsv|folded)$|^MANIFEST$/.test(name))
		return el('li', {}, line);
	const details = el('details', {}, el('summary', {}, `Look into ${name}`));
	details.addEventListener('toggle', () => {
		const text = textOf(name);
		details.append(el('pre', { tabindex: 0 }, text.slice(0, SHOWN_BYTES), text.length > SHOWN_BYTES ? '\n\u2026 the rest is in the file' : ''));
	}, { once: true });
	return el('li', {}, line, details);
}

export function files() {
	return section('files', 'Files of the incident',
		el('p', { class: 'hint' }, 'All of them are in this page, bit for bit. To restore them to a directory: spikewatch export, with the path of this page.'),
		el('ul', { class: 'files' }, names().map(file)));
}
