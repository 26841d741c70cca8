// A flame graph with its views, search, zoom by click or key, and a line with the details of a function.
import flamegraph from 'd3-flame-graph';
import { select } from 'd3-selection';
import { el, visible } from './text.js';
import * as format from './format.js';
import { graphOf } from './stacks.js';

const hues = { program: [4, 62], library: [38, 70], kernel: [205, 45], process: [150, 25], thread: [170, 25], unknown: [0, 0], other: [275, 30],
	all: [0, 0] };
const names = { program: 'the program', library: 'libraries', kernel: 'the kernel', process: 'processes, threads', unknown: 'unknown' };

// The same name has the same shade everywhere.
function shade(name) {
	let hash = 0;
	for (let i = 0; i < name.length; i++)
		hash = (hash * 31 + name.charCodeAt(i)) >>> 0;
	return hash % 100 / 100;
}

function plainColor(entry) {
	const [hue, saturation] = hues[entry.node.kind] ?? hues.other;
	const at = shade(entry.name);
	return `hsl(${hue + at * 14} ${saturation}% ${68 + at * 12}%)`;
}

// Red has grown, blue has shrunk; full at a fifth of all.
function differenceColor(entry) {
	const strength = Math.min(1, Math.sqrt(Math.abs(entry.delta) / 0.2));
	return `hsl(${entry.delta > 0 ? 6 : 214} ${Math.round(75 * strength)}% ${Math.round(92 - 27 * strength)}%)`;
}

export class Flame {
	// unit: "nanoseconds", "bytes", "count". labels: what the two phases are called, if not before and during; then they are compared at first.
	constructor({ title, unit, tree, phases, labels }) {
		Object.assign(this, { title, unit, tree, phases, labels: labels ?? { before: 'before', during: 'during' } });
		this.view = labels ? 'difference' : 'during';
		this.term = '';
		this.details = el('p', { class: 'details', 'aria-live': 'polite' });
		this.found = el('output', { class: 'found', 'aria-live': 'polite' });
		this.chartBox = el('div', { class: 'flame', tabindex: 0, role: 'application', 'aria-label':
			`Flame graph: ${title}. Arrow keys move between functions, Enter zooms, Escape shows all.`,
			keydown: event => this.key(event), focus: () => this.point(this.current ?? this.root()) });
		this.search = el('input', { type: 'search', placeholder: 'Search functions', 'aria-label': `Search: ${title}`, autocomplete: 'off',
			spellcheck: 'false', input: () => this.find(this.search.value) });
		this.element = el('div', { class: 'flame-block' }, this.toolbar(), this.chartBox, this.details, this.legend());
		this.said = () => this.hint();
	}

	toolbar() {
		const capital = text => text[0].toUpperCase() + text.slice(1);
		const views = this.phases ? [['during', capital(this.labels.during)], ['before', capital(this.labels.before)], ['difference', 'Difference']] : [];
		this.buttons = views.map(([view, label]) => el('button', { type: 'button', 'data-view': view, 'aria-pressed': String(view === this.view),
			click: () => this.show(view) }, label));
		return el('div', { class: 'toolbar', role: 'group', 'aria-label': `${this.title}: what is shown` }, this.buttons,
			el('button', { type: 'button', title: 'Show all', click: () => this.reset() }, 'All'), this.search, this.found);
	}

	legend() {
		this.legendBox = el('p', { class: 'legend' });
		return this.legendBox;
	}

	fillLegend() {
		const chip = (color, text) => {
			const mark = el('i', { 'aria-hidden': 'true' });
			mark.style.background = color;
			return el('span', {}, mark, text);
		};
		const { before, during } = this.labels;
		this.legendBox.replaceChildren(...(this.view === 'difference'
			? [chip('hsl(6 75% 65%)', during === 'during' ? 'more during the spike than before' : `more in ${during} than in ${before}`),
				chip('hsl(214 75% 65%)', 'less'), chip('hsl(0 0% 92%)', during === 'during' ? 'as before' : 'as much'),
				el('span', {}, `Widths: the mean of the shares ${before} and ${during}.`)]
			: Object.entries(names).map(([kind, text]) => chip(`hsl(${hues[kind][0] + 7} ${hues[kind][1]}% 74%)`, text))));
	}

	setTree(tree) {
		this.tree = tree;
		this.draw();
	}

	amount(value) {
		return this.unit === 'bytes' ? format.bytes(value) : this.unit === 'nanoseconds' ? format.duration(value) : format.count(value);
	}

	// What the line below says of a function.
	describe({ node }) {
		const { before, during } = this.tree;
		const parts = [node.module ? `${node.name}, ${node.module}` : node.name,
			`${this.phases ? this.labels.during : 'in all'} ${format.share(node.during, during)}, ${this.amount(node.during)}`];
		if (this.phases)
			parts.push(`${this.labels.before} ${format.share(node.before, before)}, ${this.amount(node.before)}`);
		return visible(parts.join(' \u00b7 '));
	}

	hint() {
		this.details.textContent = 'Point at a function, or tap it, to see its numbers here. A click or Enter zooms.';
	}

	root() {
		return select(this.chartBox).datum();
	}

	draw() {
		const data = graphOf(this.tree, this.view);
		this.chartBox.replaceChildren();
		this.current = null;
		this.fillLegend();
		this.hint();
		if (!(data.value > 0)) {
			this.chart = null;
			this.chartBox.append(el('p', { class: 'empty' }, 'There are no stacks of that time.'));
			return;
		}
		this.width = Math.max(200, Math.floor(this.chartBox.clientWidth) || 900);
		this.chart = flamegraph()
			.width(this.width).cellHeight(20).minFrameSize(1.2).inverted(true)
			.sort((a, b) => Boolean(b.data.node.own) - Boolean(a.data.node.own) || b.value - a.value)
			.transitionDuration(matchMedia('(prefers-reduced-motion: reduce)').matches ? 0 : 250)
			.tooltip(Object.assign(() => {}, { show() {}, hide() {} }))
			.resetHeightOnZoom(true);
		this.chart.setSearchMatch((d, term) => d.data.node.name.toLowerCase().includes(term.toLowerCase()));
		this.chart.setSearchHandler((results, sum, total) => {
			this.found.textContent = results.length ? `${format.share(sum, total)} in ${results.length} frames` : 'nothing found';
		});
		this.chart.setDetailsHandler(text => text ? undefined : this.said());
		this.chart.onHover(d => { this.details.textContent = this.describe(d.data); });
		this.chart.onClick(d => { this.point(d); });
		this.chart.setColorMapper(d => d.highlight ? '#e23be2' : this.view === 'difference' ? differenceColor(d.data) : plainColor(d.data));
		this.chart.getName(d => visible(d.data.name));
		select(this.chartBox).datum(data).call(this.chart);
		if (this.term)
			this.chart.search(this.term);
	}

	show(view) {
		this.view = view;
		for (const button of this.buttons)
			button.setAttribute('aria-pressed', String(button.dataset.view === view));
		this.draw();
	}

	find(term) {
		this.term = term.trim();
		if (!this.chart)
			return;
		if (this.term) {
			this.chart.search(this.term);
		} else {
			this.chart.clear();
			this.found.textContent = '';
		}
	}

	reset() {
		this.chart?.resetZoom();
		this.point(this.root());
	}

	// Marks a frame as the one that keys act on.
	point(d) {
		this.current = d;
		for (const frame of this.chartBox.querySelectorAll('g.current'))
			frame.classList.remove('current');
		if (!d?.data?.node)
			return;
		select(this.chartBox).selectAll('g').filter(other => other === d).each(function mark() {
			this.classList.add('current');
			this.scrollIntoView({ block: 'nearest', inline: 'nearest', behavior: 'instant' });
		});
		this.details.textContent = this.describe(d.data);
	}

	// The next function in a direction. Children and siblings that are hidden by zooming do not count.
	neighbour(key) {
		const d = this.current ?? this.root();
		const seen = list => (list ?? []).filter(other => other.value > 0).sort((a, b) => a.x0 - b.x0);
		if (key === 'ArrowUp')
			return d.parent;
		if (key === 'ArrowDown')
			return seen(d.children).reduce((most, other) => !most || other.value > most.value ? other : most, null);
		const row = seen(d.parent?.children);
		return row[row.indexOf(d) + (key === 'ArrowLeft' ? -1 : 1)];
	}

	key(event) {
		if (!this.chart || event.ctrlKey || event.metaKey || event.altKey)
			return;
		if (event.key.startsWith('Arrow')) {
			const next = this.neighbour(event.key);
			if (next)
				this.point(next);
		} else if (event.key === 'Enter' || event.key === ' ') {
			this.chart.zoomTo(this.current ?? this.root());
		} else if (event.key === 'Escape' || event.key === 'Home') {
			this.reset();
		} else {
			return;
		}
		event.preventDefault();
	}

	// Once it is in the page, and whenever the page gets another width.
	start() {
		this.draw();
		new ResizeObserver(() => {
			const width = Math.floor(this.chartBox.clientWidth);
			if (width > 0 && Math.abs(width - this.width) > 1)
				this.draw();
		}).observe(this.chartBox);
	}
}
