// What a browser makes of reports: node report.mjs DIR, with DIR/{hostile,everything,bare,real,memory,diff-one,diff-two,history}.html. Chromium is spoken to over its debugging pipe:
// no port is opened. What has to hold is said by name; the exit code says whether all does.
import { spawn } from 'node:child_process';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

const dir = resolve(process.argv[2]);
let failed = 0;
const check = (what, holds, seen) => {
	console.log(`   ${holds ? 'ok' : 'FAILED'}: ${what}${holds || seen === undefined ? '' : `: ${JSON.stringify(seen)}`}`);
	failed += !holds;
};
const pause = ms => new Promise(done => setTimeout(done, ms));

class Browser {
	constructor() {
		const profile = join(dir, 'profile');
		mkdirSync(profile);
		this.child = spawn('chromium', ['--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--no-first-run',
			'--disable-background-networking', '--disable-component-update', '--remote-debugging-pipe', `--user-data-dir=${profile}`, 'about:blank'],
		{ stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'], detached: true });
		this.waiting = new Map();
		this.listeners = new Set();
		this.last = 0;
		let rest = '';
		this.child.stdio[4].setEncoding('utf8').on('data', text => {
			const parts = (rest + text).split('\0');
			rest = parts.pop();
			parts.forEach(part => this.take(JSON.parse(part)));
		});
		this.child.on('error', error => { throw error; });
	}

	take(message) {
		const waiting = this.waiting.get(message.id);
		this.waiting.delete(message.id);
		if (!waiting)
			this.listeners.forEach(listener => listener(message));
		else if (message.error)
			waiting.reject(new Error(message.error.message));
		else
			waiting.resolve(message.result);
	}

	send(method, params = {}, sessionId = undefined) {
		const id = ++this.last;
		this.child.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
		return new Promise((resolve_, reject) => this.waiting.set(id, { resolve: resolve_, reject }));
	}

	async close() {
		const ended = new Promise(done => this.child.on('exit', done));
		await this.send('Browser.close').catch(() => {});
		await Promise.race([ended, pause(5000)]);
		try {
			process.kill(-this.child.pid, 'SIGKILL');
		} catch {
			// It has ended, and all of its processes with it.
		}
		rmSync(join(dir, 'profile'), { recursive: true, force: true, maxRetries: 5 });
	}
}

// A page that is open. errors: whatever the browser complains about; requests: whatever it fetches but the page itself.
class Page {
	static async open(browser, name, { width = 1200, height = 900, dark = false, mobile = false } = {}) {
		const page = new Page();
		const { targetId } = await browser.send('Target.createTarget', { url: 'about:blank' });
		const { sessionId } = await browser.send('Target.attachToTarget', { targetId, flatten: true });
		Object.assign(page, { errors: [], requests: [], send: (method, params) => browser.send(method, params, sessionId) });
		browser.listeners.add(message => message.sessionId === sessionId && page.hear(message));
		for (const domain of ['Runtime', 'Log', 'Page', 'Network'])
			await page.send(`${domain}.enable`);
		await page.send('Emulation.setDeviceMetricsOverride', { width, height, deviceScaleFactor: mobile ? 2 : 1, mobile });
		await page.send('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: dark ? 'dark' : 'light' },
			{ name: 'prefers-reduced-motion', value: 'reduce' }] });
		page.url = `file://${join(dir, `${name}.html`)}`;
		await page.send('Page.navigate', { url: page.url });
		// While one page gives way to the other there is neither.
		const ready = () => page.run('document.documentElement?.dataset.ready === "yes"').catch(() => false);
		for (let i = 0; i < 300 && !await ready(); i++)
			await pause(50);
		await page.settle();
		return page;
	}

	hear({ method, params }) {
		if (method === 'Runtime.exceptionThrown')
			this.errors.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text);
		else if (method === 'Runtime.consoleAPICalled')
			this.errors.push(params.args.map(arg => arg.value ?? arg.description).join(' '));
		else if (method === 'Log.entryAdded')
			this.errors.push(params.entry.text);
		else if (method === 'Network.requestWillBeSent' && params.request.url !== this.url)
			this.requests.push(params.request.url);
	}

	async run(expression) {
		const { result, exceptionDetails } = await this.send('Runtime.evaluate', { expression, awaitPromise: true, returnByValue: true });
		if (exceptionDetails)
			throw new Error(`${expression}: ${exceptionDetails.exception?.description ?? exceptionDetails.text}`);
		return result.value;
	}

	// Until what was asked for is drawn.
	settle() {
		return this.run('new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 50))))');
	}

	async key(key, code = 0) {
		for (const type of ['keyDown', 'keyUp'])
			await this.send('Input.dispatchKeyEvent', { type, key, windowsVirtualKeyCode: code, text: type === 'keyDown' && key.length === 1 ? key : undefined });
		await this.settle();
	}

	async mouse(type, x, y) {
		await this.send('Input.dispatchMouseEvent', { type, x, y, button: type === 'mouseMoved' && !this.down ? 'none' : 'left', clickCount: 1 });
		this.down = type === 'mousePressed' || (this.down && type !== 'mouseReleased');
	}

	// The middle of an element that is brought into view.
	async place(selector) {
		return this.run(`(() => { const e = document.querySelector(${JSON.stringify(selector)}); e.scrollIntoView({ block: 'center', behavior: 'instant' });
			const r = e.getBoundingClientRect(); return { x: r.x + r.width / 2, y: r.y + r.height / 2, left: r.x, top: r.y, width: r.width, height: r.height }; })()`);
	}

	async picture(name) {
		if (!process.env.KEEP)
			return;
		const { data } = await this.send('Page.captureScreenshot', { format: 'png', captureBeyondViewport: true });
		writeFileSync(join(dir, `${name}.png`), Buffer.from(data, 'base64'));
	}
}

// How many pixels of a plot have about this colour: a custom property of the page.
const pixels = (id, property) => `(() => {
	const canvas = document.querySelector('[data-plot="${id}"] canvas');
	const copy = () => Object.assign(document.createElement('canvas'), { width: canvas.width, height: canvas.height }).getContext('2d', { willReadFrequently: true });
	const context = copy(), probe = copy();
	context.drawImage(canvas, 0, 0);
	probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue('${property}').trim();
	probe.fillRect(0, 0, 1, 1);
	const want = probe.getImageData(0, 0, 1, 1).data, data = context.getImageData(0, 0, canvas.width, canvas.height).data;
	let count = 0;
	for (let i = 0; i < data.length; i += 4)
		count += data[i + 3] > 100 && [0, 1, 2].every(c => Math.abs(data[i + c] - want[c]) < 40);
	return count; })()`;

const image = id => `document.querySelector('[data-plot="${id}"] canvas').toDataURL()`;
const ranges = `[...document.querySelectorAll('.range')].map(e => e.textContent)[0]`;
const frames = id => `[...document.querySelectorAll('#${id} g.frame')].map(g => ({ name: g.getAttribute('name'), width: Number(g.querySelector('rect').getAttribute('width')) }))`;

async function quiet(page, name) {
	check(`${name}: the page was put together`, await page.run('document.documentElement.dataset.ready === "yes"'));
	check(`${name}: no complaint of the browser`, page.errors.length === 0, page.errors);
	check(`${name}: nothing is fetched`, page.requests.length === 0, page.requests);
	check(`${name}: no script but its own ran, no markup of strangers`,
		await page.run('document.querySelectorAll("main script, main b, main img, main i:not([aria-hidden])").length === 0 && !document.title.includes("owned")'));
	check(`${name}: it is no wider than the window`, await page.run('document.documentElement.scrollWidth <= innerWidth'));
}

async function drawn(page, name, ids, levels) {
	for (const id of ids) {
		check(`${name}: plot ${id} has its data`, await page.run(pixels(id, '--line-1')) + await page.run(pixels(id, '--line-2')) > 50);
		check(`${name}: plot ${id} has the trigger`, await page.run(pixels(id, '--trigger')) > 50);
		for (const level of levels[id] ?? [])
			check(`${name}: plot ${id} has the ${level}`, await page.run(pixels(id, `--${level}`)) > 50);
	}
}

async function zoom(page, name, ids) {
	const before = await page.run(ranges);
	const place = await page.place(`[data-plot="${ids[0]}"] .u-over`);
	const other = await page.run(image(ids[1]));
	await page.mouse('mouseMoved', place.left + place.width * 0.6, place.y);
	await page.mouse('mousePressed', place.left + place.width * 0.6, place.y);
	await page.mouse('mouseMoved', place.left + place.width * 0.7, place.y);
	await page.mouse('mouseMoved', place.left + place.width * 0.8, place.y);
	await page.mouse('mouseReleased', place.left + place.width * 0.8, place.y);
	await page.settle();
	const after = await page.run(ranges);
	check(`${name}: dragging zooms`, before !== after, after);
	check(`${name}: and the other plot follows`, await page.run(image(ids[1])) !== other);
	await page.mouse('mouseMoved', place.left + place.width * 0.5, place.y);
	await page.settle();
	const times = await page.run(`[...document.querySelectorAll('[data-plot]')].map(p => p.querySelector('.u-value').textContent)`);
	check(`${name}: pointing at one plot shows the same time in all`, new Set(times).size === 1 && times[0] !== '\u2013', times);
	await page.run(`document.querySelector('[data-plot="${ids[1]}"]').focus()`);
	await page.key('0', 48);
	check(`${name}: the key 0 shows all again`, await page.run(ranges) === before, await page.run(ranges));
	await page.key('+', 187);
	const closer = await page.run(ranges);
	await page.key('ArrowRight', 39);
	check(`${name}: + zooms, arrows move`, closer !== before && await page.run(ranges) !== closer);
	await page.run(`[...document.querySelectorAll('#time .toolbar button')].find(b => b.textContent === 'All').click()`);
	await page.settle();
	check(`${name}: the button shows all`, await page.run(ranges) === before);
}

async function flame(page, name, id, term) {
	const all = await page.run(frames(id));
	check(`${name}: ${id} has frames`, all.length >= 3, all.length);
	await page.run(`(() => { const i = document.querySelector('#${id} input[type=search]'); i.value = ${JSON.stringify(term)}; i.dispatchEvent(new Event('input')); })()`);
	await page.settle();
	check(`${name}: ${id}: search finds "${term}" and says how much it is`,
		/^[\d.]+ % in \d+ frames?$/.test(await page.run(`document.querySelector('#${id} .found').textContent`)), await page.run(`document.querySelector('#${id} .found').textContent`));
	check(`${name}: ${id}: what is found is marked`, await page.run(`[...document.querySelectorAll('#${id} rect')].some(r => r.getAttribute('fill') === '#e23be2')`));
	await page.run(`(() => { const i = document.querySelector('#${id} input[type=search]'); i.value = '[('; i.dispatchEvent(new Event('input')); i.value = ''; i.dispatchEvent(new Event('input')); })()`);
	await page.run(`document.querySelector('#${id} .flame').focus()`);
	for (let i = 0; i < 2; i++)
		await page.key('ArrowDown', 40);
	const current = await page.run(`document.querySelector('#${id} g.current').getAttribute('name')`);
	check(`${name}: ${id}: arrow keys move, and it says where one is`,
		current !== 'all' && (await page.run(`document.querySelector('#${id} .details').textContent`)).startsWith(current), current);
	const before = all.find(frame => frame.name === current).width;
	await page.key('Enter', 13);
	await pause(100);
	const zoomed = (await page.run(frames(id))).find(frame => frame.name === current).width;
	check(`${name}: ${id}: Enter zooms`, zoomed >= before && zoomed > 0.95 * all[0].width, [before, zoomed]);
	await page.key('Escape', 27);
	for (const view of ['before', 'difference', 'during']) {
		await page.run(`document.querySelector('#${id} [data-view=${view}]').click()`);
		await page.settle();
		check(`${name}: ${id}: the view ${view} has frames`, (await page.run(frames(id))).length >= 2 ||
			await page.run(`document.querySelector('#${id} .empty') !== null && ${JSON.stringify(view)} === 'before'`));
	}
}

async function hostile(browser) {
	const page = await Page.open(browser, 'hostile');
	await quiet(page, 'hostile');
	await drawn(page, 'hostile', ['cpu', 'memory'], { cpu: ['threshold', 'limit'], memory: ['limit'] });
	await zoom(page, 'hostile', ['cpu', 'memory']);
	const script = '<script>document.title=\'owned\'</script>', turned = 'exe\\xe2\\x80\\xaegpj."onload=x', bytes = 'bad\\xff\\xfe;utf8';
	const names = (await page.run(frames('cpu-flame'))).map(frame => frame.name);
	check('hostile: markup is a name in the flame graph', names.includes(script), names);
	check('hostile: so is what turns text around, written out', names.some(name => name.includes('\\xe2\\x80\\xae') && !name.includes('\u202e')), names);
	const cells = await page.run(`[...document.querySelectorAll('#functions td.name')].map(td => td.textContent)`);
	for (const name of [script, turned, bytes])
		check(`hostile: a cell says ${name}`, cells.includes(name), cells);
	check('hostile: nothing anywhere turns text around', await page.run('!/[\\u202a-\\u202e\\u2066-\\u2069]/.test(document.getElementById("main").textContent + document.querySelector("header").textContent)'));
	const before = await page.run(`(document.querySelector('#cpu-flame [data-view=difference]').click(), ${frames('cpu-flame')})`);
	check('hostile: the difference shows what is only there during the spike', before.some(frame => frame.name.startsWith('bad')), before);
	await page.run(`document.querySelector('#cpu-flame [data-view=during]').click()`);
	await flame(page, 'hostile', 'cpu-flame', 'PARSE');
	await flame(page, 'hostile', 'memory-flame', 'parse');
	await page.run(`document.querySelector('#functions th button').click()`);
	check('hostile: a heading sorts', await page.run(`document.querySelector('#functions th').getAttribute('aria-sort') !== null`));
	await page.run(`document.querySelectorAll('#files details').forEach(d => { d.open = true; })`);
	await page.settle();
	check('hostile: files can be looked into', await page.run(`[...document.querySelectorAll('#files pre')].some(p => p.textContent.includes('SPIKEWATCH-MANIFEST'))`));
	const lost = await page.run(`document.getElementById('lost').textContent`);

	check('hostile: what was lost is said', lost.includes('gap in the samples'));
	check('hostile: licences are there', await page.run(`['uplot', 'd3-flame-graph'].every(n => document.getElementById('licences').textContent.includes(n))`));
	const reached = await tabs(page);
	check('hostile: everything is reached by keyboard', ['button', 'a', 'input', '.plot', '.flame', 'summary'].every(kind => reached.has(kind)), [...reached]);
	await quiet(page, 'hostile, used');
	await page.picture('hostile');
}

// The functions beside the plots are those of the time that the plots show.
async function moment(page, name) {
	const columns = `[...document.querySelectorAll('#moment th')].map(th => th.textContent)`;
	const rows = `[...document.querySelectorAll('#moment tbody tr')].map(tr => [...tr.cells].map(td => td.textContent).join('|'))`;
	const button = `(() => { const b = document.querySelector('#cpu-flame [data-view=shown]'); return b.hidden ? '' : b.textContent; })()`;
	const all = await page.run(rows);
	check(`${name}: functions of the spike stand beside the plots`, all.length > 0 && (await page.run(columns)).join() === 'function,during,before,points', all);
	check(`${name}: all of the first picture is on the first screen`, await page.run(`document.querySelector('[data-plot=cpu]').getBoundingClientRect().bottom + scrollY < 844`));
	const place = await page.place('[data-plot="cpu"] .u-over');
	await page.mouse('mouseMoved', place.left + place.width * 0.55, place.y);
	await page.settle();
	const then = (await page.run(columns))[1];
	check(`${name}: pointing at a plot shows the functions of that moment`, /^at [+\u2212]?[\d.]+ s$/.test(then), then);
	const spike = await page.run(`${rows}.length`);
	await page.mouse('mouseMoved', place.left + place.width * 0.55, place.top - 60);
	await page.settle();
	check(`${name}: until the pointer leaves`, (await page.run(columns))[1] === 'during' && spike > 0, spike);
	await page.mouse('mousePressed', place.left + place.width * 0.55, place.y);
	await page.mouse('mouseReleased', place.left + place.width * 0.55, place.y);
	await page.mouse('mouseMoved', place.left + place.width * 0.55, place.top - 60);
	await page.settle();
	check(`${name}: a click keeps it, and offers its flame graph`, (await page.run(columns))[1] === then && (await page.run(button)).includes(then), await page.run(button));
	await page.run(`document.querySelector('#cpu-flame [data-view=shown]').click()`);
	await page.settle();
	const part = await page.run(`document.querySelector('#cpu-flame g.frame title, #cpu-flame g.frame') ? document.querySelectorAll('#cpu-flame g.frame').length : 0`);
	check(`${name}: which has frames`, part >= 2, part);
	await page.run(`document.querySelector('[data-plot=cpu]').focus()`);
	await page.key('Escape', 27);
	check(`${name}: Escape gives it up`, (await page.run(columns))[1] === 'during' && await page.run(button) === '' &&
		await page.run(`document.querySelector('#cpu-flame [data-view=during]').getAttribute('aria-pressed')`) === 'true');
	await page.key('+', 187);
	check(`${name}: a stretch that is zoomed to has its functions`, (await page.run(columns))[1].includes('\u2026'), await page.run(columns));
	await page.key('0', 48);
	await page.run(`document.querySelector('#moment tbody button').click()`);
	await page.settle();
	check(`${name}: a function that is clicked is found in the flame graph`, await page.run(`[...document.querySelectorAll('#cpu-flame rect')].some(r => r.getAttribute('fill') === '#e23be2')`));
	await page.run(`document.querySelector('#cpu-flame [data-view=beside]').click()`);
	await page.settle();
	check(`${name}: three flame graphs stand side by side`, await page.run(`document.querySelectorAll('#cpu-flame .flame').length`) === 3);
	await page.run(`document.querySelector('#cpu-flame [data-view=during]').click()`);
}

// A spike of memory: what the headline is about comes first, and everything calls the functions the same.
async function grown(page, name, { mobile }) {
	await quiet(page, name);
	const ids = await page.run(`[...document.querySelectorAll('[data-plot]')].map(plot => plot.dataset.plot)`);
	check(`${name}: its picture is of memory`, ids[0] === 'memory' && ids.includes('cpu'), ids);
	check(`${name}: which is on the first screen`, await page.run(`document.querySelector('[data-plot=memory]').getBoundingClientRect().bottom + scrollY < 844`));
	const rows = `[...document.querySelectorAll('#moment tbody button')].map(button => button.title)`, first = await page.run(rows);
	const told = await page.run(`document.querySelector('h1').textContent`), named = first[0]?.slice(0, first[0].lastIndexOf(', ')).split('(')[0].slice(0, 50);
	check(`${name}: the panel begins with what the headline names`, first.length === 0 || told.includes(named), [told, first]);
	const members = await page.run(`[...document.querySelectorAll('#members tbody tr')].map(row => [...row.cells].map(cell => cell.textContent).join('|'))`);
	check(`${name}: its members are told, the largest first`, members.length >= 2 && /\|tail -n 1$/.test(members[0]) && members.every(row => /MiB|KiB|\u2013/.test(row)), members);
	const flame = (await page.run(frames('memory-flame'))).map(frame => frame.name), table = await page.run(`(document.querySelectorAll('#functions .more').forEach(more => more.click()),
		document.getElementById('functions').textContent)`);
	check(`${name}: what has no name is called the same in all places`, flame.filter(frame => frame.startsWith('[')).every(frame => table.includes(frame)), flame);
	check(`${name}: what did not grow has no row`, !(await page.run(`document.getElementById('growth')?.textContent ?? ''`)).includes('+0 B'));
	if (!mobile) {
		const place = await page.place('[data-plot="memory"] .u-over');
		await page.mouse('mouseMoved', place.left + place.width * 0.7, place.y);
		await page.settle();
		const head = await page.run(`[...document.querySelectorAll('#moment th')].map(th => th.textContent)`);
		check(`${name}: pointing at its plot shows the functions of that moment`, /^at /.test(head[1] ?? ''), head);
		await page.mouse('mousePressed', place.left + place.width * 0.7, place.y);
		await page.mouse('mouseReleased', place.left + place.width * 0.7, place.y);
		await page.mouse('mouseMoved', place.left, place.top - 60);
		await page.settle();
		check(`${name}: a click keeps it`, (await page.run(`[...document.querySelectorAll('#moment th')].map(th => th.textContent)`))[1] === head[1]);
		await page.run(`document.querySelector('[data-plot=memory]').focus()`);
		await page.key('Escape', 27);
	}
	await page.run('scrollTo(0, 0)');
	await page.picture(name.replace(/\W+/g, '-'));
}

// What kinds of things the tab key comes by.
async function tabs(page) {
	const reached = new Set();
	await page.run('document.activeElement.blur(), scrollTo(0, 0)');
	for (let i = 0; i < 120; i++) {
		await page.send('Input.dispatchKeyEvent', { type: 'keyDown', key: 'Tab', windowsVirtualKeyCode: 9 });
		await page.send('Input.dispatchKeyEvent', { type: 'keyUp', key: 'Tab', windowsVirtualKeyCode: 9 });
		reached.add(await page.run(`(() => { const e = document.activeElement; return e.matches('.plot') ? '.plot' : e.matches('.flame') ? '.flame' : e.localName; })()`));
	}
	return reached;
}

async function others(browser) {
	for (const [name, options] of [['real', {}], ['real', { dark: true }], ['real', { width: 390, height: 844, mobile: true }]]) {
		const label = `${name}${options.dark ? ', dark' : options.mobile ? ', on a phone' : ''}`;
		const page = await Page.open(browser, name, options);
		await quiet(page, label);
		await drawn(page, label, ['cpu', 'memory'], { cpu: ['threshold', 'limit'] });
		check(`${label}: text and page differ in brightness as they should`, await page.run(`(() => { const s = getComputedStyle(document.body);
			const light = text => text.match(/\\d+/g).slice(0, 3).reduce((sum, v) => sum + Number(v), 0);
			return ${options.dark ? '' : '!'}(light(s.color) > light(s.backgroundColor)); })()`));
		if (!options.mobile)
			await moment(page, label);
		await page.run('scrollTo(0, 0)');
		await page.picture(label.replace(/\W+/g, '-'));
	}
	for (const [name, options] of [['memory', { width: 1280 }], ['memory', { width: 390, height: 844, dark: true, mobile: true }]])
		await grown(await Page.open(browser, name, options), options.mobile ? 'memory, on a phone' : name, options);
	const everything = await Page.open(browser, 'everything');
	await quiet(everything, 'everything');
	await drawn(everything, 'everything', ['cpu', 'memory'], {});
	await zoom(everything, 'everything', ['cpu', 'memory']);
	check('everything: each target has its line', await everything.run(`document.querySelectorAll('[data-plot=cpu] .u-series').length`) === 3);
	const bare = await Page.open(browser, 'bare');
	await quiet(bare, 'bare');
	check('bare: what was lost is the samples', (await bare.run(`document.getElementById('lost').textContent`)).includes('the samples: there is no file'));
	check('bare: what is missing is said', (await bare.run('document.body.textContent')).includes('There are no samples'));
}

async function differences(browser) {
	const one = await Page.open(browser, 'diff-one');
	await quiet(one, 'diff of one');
	const script = '<script>document.title=\'owned\'</script>', turned = 'exe\\xe2\\x80\\xaegpj."onload=x', bytes = 'bad\\xff\\xfe;utf8';
	const drawn_ = await one.run(frames('cpu-flame'));
	for (const name of [script, turned, bytes])
		check(`diff of one: the difference of the stacks has ${name}`, drawn_.some(frame => frame.name === name), drawn_);
	const legend = await one.run(`document.querySelector('#cpu-flame .legend').textContent`);
	check('diff of one: it shows the difference at first', legend.includes('more during the spike than before'), legend);
	await flame(one, 'diff of one', 'cpu-flame', 'PARSE');
	await flame(one, 'diff of one', 'memory-flame', 'parse');
	const cells = await one.run(`[...document.querySelectorAll('#functions td')].map(td => td.textContent)`);
	for (const name of [script, turned, bytes, '+40.0', 'only during'])
		check(`diff of one: a cell says ${name}`, cells.includes(name), cells);
	check('diff of one: it does not offer files', !(await one.run('document.body.textContent')).includes('gives its files back'));
	const two = await Page.open(browser, 'diff-two');
	await quiet(two, 'diff of two');
	check('diff of two: sides are called A and B', (await two.run(`document.querySelector('#cpu-flame .legend').textContent`)).includes('more in B than in A') &&
		(await two.run(`[...document.querySelectorAll('#functions th')].map(th => th.textContent).join()`)).includes('self A,total A,self B'));
	await flame(two, 'diff of two', 'cpu-flame', 'parse');
	await quiet(two, 'diff of two, used');
	await two.picture('diff');
}

// The page of spikewatch history, of minutes that make_incident.c makes.
async function minutes(browser) {
	const name = 'history', page = await Page.open(browser, name);
	const said = () => page.run(`document.querySelector('.reading').textContent`);
	const middle = async part => {
		const place = await page.place('svg.plot');
		return [place.left + 62 + part * (place.width - 70), place.y];
	};
	await quiet(page, name);
	await page.run(`document.querySelector('svg.plot').focus()`);
	await page.mouse('mouseMoved', ...await middle(30.5 / 90));
	await page.settle();
	check('history: a minute that is pointed at says what was used in it, and its incident',
		(await said()).startsWith('12:30: CPU 40 % of a core, peak 120 %; memory 100 MiB.') && (await said()).includes('20261123T123012.000Z-a-cpu-1'), await said());
	await page.key('ArrowRight', 39);
	check('history: a key goes to the next', (await said()).startsWith('12:31: CPU 41 % of a core'), await said());
	await page.mouse('mouseMoved', ...await middle(45 / 90));
	await page.settle();
	check('history: a gap has its reason', (await said()).includes('spikewatchd was not running'), await said());
	await page.mouse('mouseMoved', ...await middle(60 / 90));
	await page.mouse('mousePressed', ...await middle(60 / 90));
	await page.mouse('mouseMoved', ...await middle(75 / 90));
	await page.mouse('mouseReleased', ...await middle(75 / 90));
	await page.settle();
	const times = await page.run(`[...document.querySelectorAll('.plot text')].map(text => text.textContent).filter(text => text.includes(':'))`);
	check('history: dragging shows those minutes alone', times[0] >= '13:00' && times.at(-1) <= '13:15', times);
	await page.run(`document.querySelector('details').open = true`);
	await page.settle();
	const listed = await page.run(`[...document.querySelectorAll('.minutes tr')].map(row => row.cells[0].textContent)`);
	check('history: each of them is in the table', listed.length >= 15 && listed.length <= 18 && listed.includes('13:07'), listed);
	await page.run(`document.querySelectorAll('.targets tr[data-name]')[1].click()`);
	await page.settle();
	check('history: another target is chosen by its row', (await said()).includes('CPU 0.1 % of a core'), await said());
	await quiet(page, `${name}, used`);
	await quiet(await Page.open(browser, name, { width: 390, height: 844, dark: true, mobile: true }), `${name} on a phone`);
	await page.picture(name);
}

const browser = new Browser();
try {
	await hostile(browser);
	await others(browser);
	await differences(browser);
	await minutes(browser);
} catch (error) {
	check(`the check itself: ${error.stack}`, false);
} finally {
	await browser.close();
}
process.exit(failed > 0 ? 1 : 0);
