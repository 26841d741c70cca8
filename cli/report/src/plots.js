// Plots over time, one below the other, which share zoom and cursor.
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { el, visible } from './text.js';
import * as format from './format.js';
import { show } from './shown.js';

const syncKey = 'time';
const LIMIT_IN_VIEW = 2.5; // a limit that is further above the data than this would squeeze them flat

function colors() {
	const style = getComputedStyle(document.documentElement);
	const get = name => style.getPropertyValue(name).trim();
	return {
		text: get('--muted'), page: get('--page'), grid: get('--grid'), trigger: get('--trigger'), threshold: get('--threshold'), limit: get('--limit'),
		window: get('--window'), lines: [1, 2, 3, 4, 5, 6, 7, 8].map(index => get(`--line-${index}`)), area: get('--area'),
	};
}

// Of the values and the levels: what the picture has to show. What was measured between two samples may exceed what a window can be, because the kernel counts
// CPU time by its tick: lines over windows say how high the picture is, if there are any.
function highest(plot) {
	let most = 0;
	const lines = plot.lines.filter(({ kind }) => kind !== 'area');
	for (const { values } of lines.length ? lines : plot.lines)
		for (const value of values)
			if (value > most)
				most = value;
	return most;
}

function topOf(plot) {
	const data = highest(plot);
	let top = data;
	for (const { name, value } of plot.levels)
		if (name !== 'limit' || value <= LIMIT_IN_VIEW * data)
			top = Math.max(top, value);
	// Room for the name of a limit that is out of view.
	return top > 0 ? top * (plot.levels.some(({ value }) => value > top) ? 1.18 : 1.08) : 1;
}

const byteSteps = Array.from({ length: 50 }, (_, power) => 2 ** power);

// Room for the labels of the vertical axis: the same in all plots, so that the same time is in the same place.
const AXIS_WIDTH = 76;

// Levels, the window of the rule and the moment it fired, drawn over the data.
function drawMarks(self, plot, marks, group) {
	const { ctx, bbox } = self;
	const c = colors();
	const ratio = devicePixelRatio || 1;
	const x = seconds => self.valToPos(seconds, 'x', true);
	const inside = at => at >= bbox.left && at <= bbox.left + bbox.width;

	ctx.save();
	ctx.beginPath();
	ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
	ctx.clip();
	ctx.font = `${12 * ratio}px system-ui, sans-serif`;
	ctx.lineWidth = Math.max(1, 1.5 * ratio);

	if (marks.window) {
		const left = Math.max(x(-marks.window), bbox.left);
		const right = Math.min(x(0), bbox.left + bbox.width);
		ctx.fillStyle = c.window;
		if (right > left)
			ctx.fillRect(left, bbox.top, Math.max(right - left, ratio), bbox.height);
	}

	// Where the sampler took nothing: dots over the whole height, and what is known.
	for (const hole of marks.holes) {
		const left = Math.max(x(hole.from), bbox.left);
		const right = Math.min(x(hole.to), bbox.left + bbox.width);
		if (hole.suspended_ns > 0 && right > left) {
			ctx.fillStyle = c.text;
			for (let dotY = bbox.top; dotY < bbox.top + bbox.height; dotY += 6 * ratio)
				ctx.fillRect(right - ratio, dotY, 2 * ratio, 3 * ratio);
			ctx.textAlign = 'left';
			ctx.textBaseline = 'top';
			ctx.fillText(`suspended for ${format.duration(hole.suspended_ns)}`, right + 4 * ratio, bbox.top + 3 * ratio);
		}
		if (right - left < 2 * ratio)
			continue;
		ctx.fillStyle = c.text;
		ctx.globalAlpha = 0.4;
		for (let dotX = left + 3 * ratio; dotX < right; dotX += 6 * ratio)
			for (let dotY = bbox.top + 3 * ratio; dotY < bbox.top + bbox.height; dotY += 6 * ratio)
				ctx.fillRect(dotX, dotY, ratio, ratio);
		ctx.globalAlpha = 1;
		if (right - left < 90 * ratio)
			continue;
		ctx.textAlign = 'center';
		ctx.textBaseline = 'middle';
		const average = plot.id === 'cpu' && hole.cpu !== null ? `, ${format.quantity(hole.cpu, plot.unit)} on average` : '';
		ctx.fillText(`no samples${average}`, (left + right) / 2, bbox.top + bbox.height / 2, right - left);
	}

	const taken = [];
	for (const { name, value } of plot.levels) {
		const color = name === 'limit' ? c.limit : c.threshold;
		const at = self.valToPos(value, 'y', true);
		const above = at < bbox.top;
		const label = `${name} ${format.quantity(value, plot.unit)}${above ? ' \u2191' : ''}`;
		ctx.strokeStyle = ctx.fillStyle = color;
		ctx.setLineDash(name === 'limit' ? [] : [6 * ratio, 4 * ratio]);
		if (!above) {
			ctx.beginPath();
			ctx.moveTo(bbox.left, at);
			ctx.lineTo(bbox.left + bbox.width, at);
			ctx.stroke();
		}
		ctx.textAlign = above ? 'left' : 'right';
		ctx.textBaseline = 'bottom';
		let y = above ? bbox.top + 16 * ratio : at - 3 * ratio;
		if (y < bbox.top + 14 * ratio)
			y = above ? y : at + 17 * ratio;
		while (!above && taken.some(other => Math.abs(other - y) < 14 * ratio))
			y += 15 * ratio;
		if (!above)
			taken.push(y);
		// Lines of data pass behind it.
		const labelX = above ? bbox.left + 6 * ratio : bbox.left + bbox.width - 6 * ratio;
		ctx.save();
		ctx.setLineDash([]);
		ctx.lineWidth = 4 * ratio;
		ctx.lineJoin = 'round';
		ctx.strokeStyle = c.page;
		ctx.strokeText(label, labelX, y);
		ctx.restore();
		ctx.fillText(label, labelX, y);
	}

	ctx.setLineDash([]);
	for (const { at, name, main } of group.kept === null ? marks.moments : [...marks.moments, { at: group.kept, name: 'chosen' }]) {
		if (!inside(x(at)))
			continue;
		ctx.strokeStyle = ctx.fillStyle = c.trigger;
		ctx.globalAlpha = main ? 1 : 0.55;
		ctx.beginPath();
		ctx.moveTo(x(at), bbox.top);
		ctx.lineTo(x(at), bbox.top + bbox.height);
		ctx.stroke();
		const left = x(at) > bbox.left + bbox.width * 0.85;
		ctx.textAlign = left ? 'right' : 'left';
		ctx.textBaseline = 'top';
		ctx.fillText(name, x(at) + (left ? -5 : 5) * ratio, bbox.top + (main ? 3 : 18) * ratio);
	}
	ctx.restore();
}

// Colours are read from the style of the page whenever something is drawn.
function seriesOf(plot) {
	return plot.lines.map((line, index) => {
		const area = line.kind === 'area';
		const color = () => area ? colors().area : colors().lines[plot.lines[0].kind === 'area' ? 1 : index % 8];
		return {
			label: visible(line.name),
			scale: 'y',
			stroke: color,
			fill: area ? () => colors().area : undefined,
			width: area ? 1 : 1.75,
			spanGaps: false,
			points: { show: false },
			value: (self, value) => format.quantity(value, plot.unit),
		};
	});
}

function optionsOf(plot, marks, time, group) {
	const top = topOf(plot);
	return {
		width: 600,
		height: 240,
		padding: [12, 26, 0, 0],
		scales: {
			x: { time: false, range: (self, min, max) => [Math.max(min, time.from), Math.min(max, time.to)] },
			y: { range: () => [0, top] },
		},
		cursor: { sync: { key: syncKey, setSeries: false }, drag: { x: true, y: false }, focus: { prox: 30 } },
		legend: { live: true },
		series: [
			{ label: 'Time', value: (self, value) => value === null ? '\u2013' : format.offset(value) },
			...seriesOf(plot),
		],
		axes: [
			{ stroke: () => colors().text, grid: { stroke: () => colors().grid, width: 1 }, ticks: { show: false }, size: 34,
				values: (self, splits) => splits.map(value => format.offset(value)) },
			{ stroke: () => colors().text, grid: { stroke: () => colors().grid, width: 1 }, ticks: { show: false }, size: AXIS_WIDTH,
				...(plot.unit === 'bytes' ? { incrs: byteSteps } : {}), space: 36,
				values: (self, splits) => splits.map(value => format.quantity(value, plot.unit)) },
		],
		hooks: {
			draw: [self => drawMarks(self, plot, marks, group)],
			setCursor: [self => group.point(self)],
			setScale: [(self, key) => key === 'x' && group.follow(self)],
		},
	};
}

function describe(plot) {
	const levels = plot.levels.map(({ name, value }) => `${name} ${format.quantity(value, plot.unit)}`);
	return visible(`${plot.title}: highest ${format.quantity(highest(plot), plot.unit)}${levels.length ? `, ${levels.join(', ')}` : ''}. ` +
		'Arrow keys move along, plus and minus zoom, 0 shows all, Enter chooses the middle.');
}

// All plots of the page. What one of them shows, all show.
class Group {
	constructor(time) {
		this.time = time;
		this.plots = [];
		this.busy = false;
		this.pointed = this.kept = null; // moments, in seconds
	}

	get range() {
		const { min, max } = this.plots[0].scales.x;
		return [min, max];
	}

	follow(self) {
		const { min, max } = self.scales.x;
		if (this.busy || !Number.isFinite(min))
			return;
		this.busy = true;
		for (const other of this.plots)
			if (other !== self && (other.scales.x.min !== min || other.scales.x.max !== max))
				other.setScale('x', { min, max });
		this.busy = false;
		this.said?.(min, max);
		this.tell();
	}

	// The moment under the pointer; the plots share their cursor, and one of them has the pointer.
	point(self) {
		if (!self.over.matches(':hover'))
			return;
		const { left } = self.cursor;
		this.pointed = left >= 0 ? self.posToVal(left, 'x') : null;
		this.tell();
	}

	leave() {
		this.pointed = null;
		this.tell();
	}

	// Keeps a moment, or gives up the one that is kept.
	keep(at) {
		this.kept = this.kept === null ? at : null;
		this.plots.forEach(chart => chart.redraw(false));
		this.tell();
	}

	// What the rest of the page is to show.
	tell() {
		const { from, to, points } = this.time, [min, max] = this.range, step = (to - from) / points;
		if (this.kept !== null)
			show('kept', this.kept, this.kept);
		else if (this.pointed !== null)
			show('pointed', this.pointed, this.pointed);
		else if (min > from + step || max < to - step)
			show('zoom', min, max);
		else
			show('all', from, to);
	}

	show(min, max) {
		const least = (this.time.to - this.time.from) / this.time.points * 8;
		const span = Math.min(Math.max(max - min, least), this.time.to - this.time.from);
		let from = (min + max - span) / 2;
		from = Math.min(Math.max(from, this.time.from), this.time.to - span);
		// Also if all of it is shown already: a drag in a plot may have been half a zoom.
		this.plots[0]?.setScale('x', { min: from, max: from + span });
	}

	all() {
		this.show(this.time.from, this.time.to);
	}

	around() {
		const half = Math.min((this.time.to - this.time.from) / 2, Math.max(this.time.window * 6, 1));
		this.show(-half, half);
	}

	zoom(factor) {
		const [min, max] = this.range;
		const middle = (min + max) / 2, half = (max - min) / 2 / factor;
		this.show(middle - half, middle + half);
	}

	move(part) {
		const [min, max] = this.range;
		const by = (max - min) * part;
		this.show(min + by, max + by);
	}

	key(event) {
		const action = { '+': () => this.zoom(2), '=': () => this.zoom(2), '-': () => this.zoom(0.5), '0': () => this.all(), Escape: () => (this.kept === null ? this.all() : this.keep(null)),
			Enter: () => this.keep((this.range[0] + this.range[1]) / 2), ArrowLeft: () => this.move(-0.2), ArrowRight: () => this.move(0.2), Home: () => this.all(), t: () => this.around() }[event.key];
		if (!action || event.ctrlKey || event.metaKey || event.altKey)
			return;
		event.preventDefault();
		action();
	}
}

function toolbar(group) {
	const shown = el('output', { class: 'range', 'aria-live': 'polite' });
	const button = (label, title, action) => el('button', { type: 'button', title, 'aria-label': title, click: action }, label);
	group.said = (min, max) => { shown.textContent = `${format.offset(min, 2)} \u2026 ${format.offset(max, 2)}`; };
	return el('div', { class: 'toolbar', role: 'group', 'aria-label': 'Time shown, of all plots' },
		button('All', 'Show all of the time', () => group.all()),
		button('Spike', 'Show the time around the trigger', () => group.around()),
		button('\u2212', 'Zoom out', () => group.zoom(0.5)),
		button('+', 'Zoom in', () => group.zoom(2)),
		button('\u25c0', 'Earlier', () => group.move(-0.5)),
		button('\u25b6', 'Later', () => group.move(0.5)),
		shown);
}

function place(figure, plot, marks, times, time, group) {
	const box = el('div', { class: 'plot', tabindex: 0, role: 'img', 'aria-label': describe(plot), 'data-plot': plot.id,
		keydown: event => group.key(event) });
	figure.append(box);
	const chart = new uPlot(optionsOf(plot, marks, time, group), [times, ...plot.lines.map(line => line.values)], box);
	group.plots.push(chart);
	let pressed = null;
	chart.over.addEventListener('pointerdown', event => { pressed = event.clientX; });
	chart.over.addEventListener('pointerleave', () => group.leave());
	chart.over.addEventListener('click', event => {
		if (pressed !== null && Math.abs(event.clientX - pressed) < 4)
			group.keep(chart.posToVal(event.clientX - chart.over.getBoundingClientRect().left, 'x'));
	});
	const fit = () => {
		const width = Math.floor(box.clientWidth);
		if (width > 0 && width !== chart.width)
			chart.setSize({ width, height: width < 500 ? 190 : plot.first ? 250 : 190 });
	};
	new ResizeObserver(fit).observe(box);
	fit();
	return chart;
}

// The section's content, and what draws it again when the colours have changed. data: the report's; marks: { window, moments } in seconds.
export function plots(data, marks, container) {
	const { from_ns, to_ns, points } = data.time;
	const time = { from: from_ns / 1e9, to: to_ns / 1e9, points, window: marks.window || 0.5 };
	const step = (time.to - time.from) / points;
	const times = Array.from({ length: points }, (_, index) => time.from + (index + 0.5) * step);
	const group = new Group(time);

	container.append(toolbar(group));
	data.plots.forEach((plot, index) => { plot.first = index === 0; });
	for (const plot of data.plots) {
		if (!plot.lines.length || !plot.lines.some(line => line.values.some(value => value !== null)))
			continue;
		const figure = el('figure', {}, el('figcaption', {}, plot.title));
		container.append(figure);
		place(figure, plot, marks, times, time, group);
	}
	group.all();
	matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => group.plots.forEach(chart => chart.redraw(false, true)));
	return group;
}
