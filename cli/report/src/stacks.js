// Stacks as a tree, of profiles or of folded text: { name, module, before, during, children }.
import { unescaped } from './text.js';

export function emptyTree() {
	return { name: 'all', module: '', kind: 'all', before: 0, during: 0, children: new Map() };
}

function kindOf(name, module) {
	if (module === '[kernel]' || module.startsWith('[kernel'))
		return 'kernel';
	if (name.startsWith('['))
		return 'unknown';
	if (/\.so(\.|$)/.test(module))
		return 'library';
	return module.startsWith('/') || module === '' ? 'program' : 'other';
}

function child(node, name, module, kind) {
	const key = `${name}\u0000${module}`;
	let next = node.children.get(key);
	if (!next) {
		next = { name, module, kind: kind ?? kindOf(name, module), before: 0, during: 0, children: new Map() };
		node.children.set(key, next);
	}
	return next;
}

// Short-lived processes of one name (of a build, for instance) are merged: each alone would be too narrow to be seen.
function processNames(stacks) {
	const pids = new Map();
	for (const { process, pid } of stacks)
		pids.set(process, (pids.get(process) ?? new Set()).add(pid));
	return process => {
		const own = pids.get(process);
		const [pid] = own;
		return process === '' ? '' : own.size > 1 ? `${process} (${own.size} processes)` : pid === undefined ? process : `${process} (${pid})`;
	};
}

// byThread: threads are a level of their own between processes and functions. ownPid: the target's, whose process comes first; 0: not one process.
export function treeOf(stacks, byThread, ownPid = 0) {
	const root = emptyTree();
	const processName = processNames(stacks);
	for (const { phase, process, pid, thread, tid, frames, value } of stacks) {
		let node = root;
		node[phase] += value;
		for (const [label, kind] of [[processName(process), 'process'], [byThread && thread ? `${thread} (${tid})` : '', 'thread']]) {
			if (label !== '') {
				node = child(node, label, '', kind);
				node[phase] += value;
				node.own ||= ownPid !== 0 && pid === ownPid;
			}
		}
		for (const frame of frames) {
			node = child(node, frame.name, frame.module);
			node[phase] += value;
		}
	}
	return root;
}

// Without phases: all of it is "during".
export function treeOfFolded(text) {
	const root = emptyTree();
	for (const line of text.split('\n')) {
		const space = line.lastIndexOf(' ');
		const value = Number(line.slice(space + 1));
		if (space < 1 || !(value > 0))
			continue;
		let node = root;
		node.during += value;
		line.slice(0, space).split(';').forEach((name, index) => {
			node = child(node, unescaped(name), '', index === 0 ? 'process' : undefined);
			node.during += value;
		});
	}
	return root;
}

// Lines with two counts, "a;b 3 5": the first is "before", the second "during".
export function treeOfPair(text) {
	const root = emptyTree();
	for (const line of text.split('\n')) {
		const match = /^(.+) (\d+) (\d+)$/.exec(line);
		if (!match)
			continue;
		const before = Number(match[2]), during = Number(match[3]);
		let node = root;
		const add = () => {
			node.before += before;
			node.during += during;
		};
		add();
		match[1].split(';').forEach((name, index) => {
			node = child(node, unescaped(name), '', index === 0 ? 'process' : undefined);
			add();
		});
	}
	return root;
}

// What d3-flame-graph draws. view: "before", "during", or "difference": then widths are the mean of both shares, and delta is what the share
// has grown by.
export function graphOf(tree, view) {
	const all = { before: tree.before, during: tree.during };
	const part = (node, phase) => all[phase] > 0 ? node[phase] / all[phase] : 0;

	function make(node) {
		const delta = part(node, 'during') - part(node, 'before');
		const value = view === 'difference' ? (part(node, 'during') + part(node, 'before')) / 2 : node[view];
		return { name: node.name, node, value, delta,
			children: [...node.children.values()].map(make).filter(entry => entry.value > 0) };
	}

	return make(tree);
}
