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

// One picture: a view of a tree.
class Chart {
	constructor(flame, view) {
		Object.assign(this, { flame, view });
		this.box = el('div', { class: 'flame', tabindex: 0, role: 'application', 'data-shows': view, 'aria-label':
			`Flame graph: ${flame.title}, ${view}. Arrow keys move between functions, Enter zooms, Escape shows all.`,
			keydown: event => this.key(event), focus: () => this.point(this.current ?? this.root()) });
	}

	root() {
		return select(this.box).datum();
	}

	draw() {
		const { flame } = this;
		this.tree = flame.treeOf(this.view);
		const data = graphOf(this.tree, this.view === 'shown' ? 'during' : this.view);
		this.box.replaceChildren();
		this.current = null;
		if (!(data.value > 0)) {
			this.chart = null;
			this.box.append(el('p', { class: 'empty' }, 'There are no stacks of that time.'));
			return;
		}
		this.width = Math.max(200, Math.floor(this.box.clientWidth) || 900);
		this.chart = flamegraph()
			.width(this.width).cellHeight(20).minFrameSize(1.2).inverted(true)
			.sort((a, b) => Boolean(b.data.node.own) - Boolean(a.data.node.own) || b.value - a.value)
			.transitionDuration(matchMedia('(prefers-reduced-motion: reduce)').matches ? 0 : 250)
			.tooltip(Object.assign(() => {}, { show() {}, hide() {} }))
			.resetHeightOnZoom(true);
		this.chart.setSearchMatch((d, term) => d.data.node.name.toLowerCase().includes(term.toLowerCase()));
		this.chart.setSearchHandler((results, sum, total) => flame.sayFound(this, results, sum, total));
		this.chart.setDetailsHandler(text => text ? undefined : flame.hint());
		this.chart.onHover(d => flame.say(this.describe(d.data)));
		this.chart.onClick(d => this.point(d));
		this.chart.setColorMapper(d => d.highlight ? '#e23be2' : this.view === 'difference' ? differenceColor(d.data) : plainColor(d.data));
		this.chart.getName(d => visible(d.data.name));
		select(this.box).datum(data).call(this.chart);
		if (flame.term)
			this.chart.search(flame.term);
	}

	find(term) {
		if (term)
			this.chart?.search(term);
		else
			this.chart?.clear();
	}

	// What the line below says of a function.
	describe({ node }) {
		const { before, during } = this.tree;
		const { flame } = this;
		const label = this.view === 'shown' ? 'in the time shown' : flame.phases ? flame.labels.during : 'in all';
		const parts = [node.module ? `${node.name}, ${node.module}` : node.name, `${label} ${format.share(node.during, during)}, ${flame.amount(node.during)}`];
		if (flame.phases && this.view !== 'shown')
			parts.push(`${flame.labels.before} ${format.share(node.before, before)}, ${flame.amount(node.before)}`);
		return visible(parts.join(' \u00b7 '));
	}

	reset() {
		this.chart?.resetZoom();
		this.point(this.root());
	}

	// Marks a frame as the one that keys act on.
	point(d) {
		this.current = d;
		for (const frame of this.box.querySelectorAll('g.current'))
			frame.classList.remove('current');
		if (!d?.data?.node)
			return;
		select(this.box).selectAll('g').filter(other => other === d).each(function mark() {
			this.classList.add('current');
			this.scrollIntoView({ block: 'nearest', inline: 'nearest', behavior: 'instant' });
		});
		this.flame.say(this.describe(d.data));
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
}

export class Flame {
	// unit: "nanoseconds", "bytes", "count". labels: what the two phases are called, if not before and during; then they are compared at first.
	// shownTree: makes the tree of the time that the plots show; the view of it is offered by offerShown.
	constructor({ title, unit, tree, phases, labels, shownTree }) {
		Object.assign(this, { title, unit, tree, phases, shownTree, labels: labels ?? { before: 'before', during: 'during' } });
		this.view = labels ? 'difference' : 'during';
		this.term = '';
		this.details = el('p', { class: 'details', 'aria-live': 'polite' });
		this.found = el('output', { class: 'found', 'aria-live': 'polite' });
		this.chartsBox = el('div', { class: 'flames' });
		this.search = el('input', { type: 'search', placeholder: 'Search functions', 'aria-label': `Search: ${title}`, autocomplete: 'off',
			spellcheck: 'false', input: () => this.find(this.search.value) });
		this.legendBox = el('p', { class: 'legend' });
		this.element = el('div', { class: 'flame-block' }, this.toolbar(), this.chartsBox, this.details, this.legendBox);
	}

	toolbar() {
		const capital = text => text[0].toUpperCase() + text.slice(1);
		const views = this.phases ? [['during', capital(this.labels.during)], ['before', capital(this.labels.before)], ['difference', 'Difference'],
			['beside', 'Side by side'], ...this.shownTree ? [['shown', 'Time shown']] : []] : [];
		this.buttons = views.map(([view, label]) => el('button', { type: 'button', 'data-view': view, 'aria-pressed': String(view === this.view),
			hidden: view === 'shown', click: () => this.show(view) }, label));
		return el('div', { class: 'toolbar', role: 'group', 'aria-label': `${this.title}: what is shown` }, this.buttons,
			el('button', { type: 'button', title: 'Show all', click: () => this.charts.forEach(chart => chart.reset()) }, 'All'), this.search, this.found);
	}

	// Whether the plots show less than all, and what the view of that is called.
	offerShown(offered, label) {
		const button = this.buttons.find(({ dataset }) => dataset.view === 'shown');
		if (!button)
			return;
		button.hidden = !offered;
		button.textContent = label;
		if (this.view === 'shown')
			offered ? this.draw() : this.show('during');
	}

	fillLegend() {
		const chip = (color, text) => {
			const mark = el('i', { 'aria-hidden': 'true' });
			mark.style.background = color;
			return el('span', {}, mark, text);
		};
		const { before, during } = this.labels;
		const difference = [chip('hsl(6 75% 65%)', during === 'during' ? 'more during the spike than before' : `more in ${during} than in ${before}`),
			chip('hsl(214 75% 65%)', 'less'), chip('hsl(0 0% 92%)', during === 'during' ? 'as before' : 'as much'),
			el('span', {}, `Widths: the mean of the shares ${before} and ${during}.`)];
		const plain = Object.entries(names).map(([kind, text]) => chip(`hsl(${hues[kind][0] + 7} ${hues[kind][1]}% 74%)`, text));
		this.legendBox.replaceChildren(...(this.view === 'difference' ? difference : this.view === 'beside' ? [...plain, ...difference] : plain));
	}

	treeOf(view) {
		return view === 'shown' ? this.shownTree() : this.tree;
	}

	setTree(tree) {
		this.tree = tree;
		this.draw();
	}

	amount(value) {
		return this.unit === 'bytes' ? format.bytes(value) : this.unit === 'nanoseconds' ? format.duration(value) : format.count(value);
	}

	say(text) {
		this.details.textContent = text;
	}

	hint() {
		this.say('Point at a function, or tap it, to see its numbers here. A click or Enter zooms.');
	}

	sayFound(chart, results, sum, total) {
		if (chart === this.charts[0])
			this.found.textContent = results.length ? `${format.share(sum, total)} in ${results.length} frames` : 'nothing found';
	}

	// Makes the pictures of the view, and draws them.
	draw() {
		const views = this.view === 'beside' ? ['during', 'before', 'difference'] : [this.view];
		this.charts = views.map(view => new Chart(this, view));
		this.chartsBox.classList.toggle('beside', views.length > 1);
		this.chartsBox.replaceChildren(...this.charts.map(({ box, view }) => views.length === 1 ? box
			: el('div', {}, el('h3', {}, view === 'difference' ? 'Difference' : this.labels[view]), box)));
		this.fillLegend();
		this.hint();
		this.charts.forEach(chart => chart.draw());
		this.width = this.chartsBox.clientWidth;
	}

	show(view) {
		this.view = view;
		for (const button of this.buttons)
			button.setAttribute('aria-pressed', String(button.dataset.view === view));
		this.draw();
	}

	find(term) {
		this.term = term.trim();
		if (this.search.value !== term)
			this.search.value = term;
		this.charts.forEach(chart => chart.find(this.term));
		if (!this.term)
			this.found.textContent = '';
	}

	// Once it is in the page, and whenever the page gets another width.
	start() {
		this.draw();
		new ResizeObserver(() => {
			const width = this.chartsBox.clientWidth;
			if (width > 0 && Math.abs(width - this.width) > 1)
				this.draw();
		}).observe(this.chartsBox);
	}
}
