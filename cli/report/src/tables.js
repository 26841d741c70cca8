// Tables: out of tab-separated text, or made; sorted by a click on a heading.
import { el, unescaped } from './text.js';
import * as format from './format.js';

// { columns, rows, remarks }; rows are objects of text by column.
export function parse(text) {
	const remarks = [];
	let columns = null;
	const rows = [];
	for (const line of text.split('\n')) {
		if (line === '')
			continue;
		if (line.startsWith('#')) {
			remarks.push(unescaped(line.slice(1).trim()));
			continue;
		}
		const cells = line.split('\t').map(unescaped);
		if (!columns)
			columns = cells;
		else
			rows.push(Object.fromEntries(columns.map((name, index) => [name, cells[index] ?? ''])));
	}
	return { columns: columns ?? [], rows, remarks };
}

// How a column is shown, by the end of its name; as table.h of the command has it.
function cell(name, text) {
	const value = Number(text);
	if (text === '' || !Number.isFinite(value))
		return text;
	if (name.endsWith('_bytes'))
		return text.startsWith('+') && value > 0 ? `+${format.bytes(value)}` : format.bytes(value);
	if (name.endsWith('_percent'))
		return format.quantity(value, 'percent');
	if (name.endsWith('_ms'))
		return format.duration(value * 1e6);
	if (name.endsWith('_ns'))
		return format.duration(value);
	return text;
}

function compare(a, b) {
	const x = Number(a), y = Number(b);
	if (a !== '' && b !== '' && Number.isFinite(x) && Number.isFinite(y))
		return x - y;
	return a < b ? -1 : a > b ? 1 : 0;
}

// columns: [{ key, title, text?: row => string, number?: bool, bar?: row => 0..1 }].
export function table({ columns, rows, caption, shown = 12 }) {
	const body = el('tbody');
	const more = el('button', { type: 'button', class: 'more' });
	let order = rows.slice();
	let limit = shown;

	function line(row) {
		return el('tr', {}, columns.map(column => {
			const text = column.text ? column.text(row) : cell(column.key, row[column.key]);
			const td = el('td', { class: column.number ? 'number' : 'name', 'data-title': column.title }, el('span', {}, text));
			if (column.bar) {
				td.classList.add('bar');
				td.style.setProperty('--share', `${Math.max(0, Math.min(100, 100 * column.bar(row)))}%`);
			}
			return td;
		}));
	}

	function fill() {
		body.replaceChildren(...order.slice(0, limit).map(line));
		more.hidden = order.length <= shown;
		more.textContent = limit < order.length ? `Show all ${order.length}` : `Show the first ${shown}`;
	}

	function sortBy(column, header) {
		const descending = header.getAttribute('aria-sort') !== 'descending';
		for (const other of header.parentNode.children)
			other.removeAttribute('aria-sort');
		header.setAttribute('aria-sort', descending ? 'descending' : 'ascending');
		order = rows.slice().sort((a, b) => (descending ? -1 : 1) * compare(a[column.key] ?? '', b[column.key] ?? ''));
		fill();
	}

	const head = el('tr', {}, columns.map(column => {
		const header = el('th', { scope: 'col', class: column.number ? 'number' : 'name' });
		header.append(el('button', { type: 'button', click: () => sortBy(column, header) }, column.title));
		return header;
	}));
	more.addEventListener('click', () => {
		limit = limit < order.length ? order.length : shown;
		fill();
	});
	fill();
	return el('div', { class: 'table' },
		el('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption },
			el('table', {}, el('caption', {}, caption), el('thead', {}, head), body)), more);
}
