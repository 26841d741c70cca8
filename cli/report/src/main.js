// Builds the page: the words are in it already, everything else is made from the embedded data and files.
import { el, visible } from './text.js';
import * as format from './format.js';
import { cutMiddle } from './moment.js';
import { data } from './embedded.js';
import * as sections from './sections.js';
import * as diff from './diff.js';
import '../style.css'; // after those of the libraries

function head() {
	const { incident } = data;
	const target = incident.target.name || 'an unknown target';
	const title = incident.kind === 'recovered' ? 'Saved from the ring of a daemon that died' :
		incident.kind === 'manual' ? `A record of ${data.everything ? 'everything' : target}` : data.headline || `${incident.rule.name} on ${target}`;
	document.getElementById('heading').replaceChildren(...el('h1', {}, title).childNodes);
	const fact = text => el('span', {}, text);
	const facts = [incident.time.utc?.replace('T', ' ').replace(/(\.\d{3})\d*Z/, '$1 UTC'), incident.machine.hostname && `on ${incident.machine.hostname}`,
		incident.kind === 'rule' && `rule ${incident.rule.name}`,
		incident.peaks.cpu_cores !== null && `CPU at most ${format.quantity(incident.peaks.cpu_cores, 'cores')}`,
		(incident.peaks.memory_peak_bytes ?? incident.peaks.memory_bytes) !== null &&
			`memory at most ${format.quantity(incident.peaks.memory_peak_bytes ?? incident.peaks.memory_bytes, 'bytes')}`];
	document.getElementById('facts').append(...facts.filter(Boolean).map(fact));
	const command = incident.target.cmdline || incident.target.cgroup;
	if (command)
		document.getElementById('facts').append(el('code', { title: visible(command) }, cutMiddle(command, 110)));
	if (data.damaged)
		document.getElementById('story').before(el('p', { class: 'notice' }, `This incident is damaged: ${data.why}. What could be read is shown.`));
}

function contents(made) {
	return el('nav', { 'aria-label': 'Contents' }, made.map(section =>
		el('a', { href: `#${section.id}` }, section.querySelector('h2').textContent)));
}

async function build() {
	(data.diff ? diff.head : head)();
	const main = document.getElementById('main');
	const { rule, time, members, cpuFlame, memoryFlame, nameless, functions, targets, threads, growth, system, lost, files } = sections;
	const made = [];
	const flames = sections.ofMemory ? [memoryFlame, cpuFlame] : [cpuFlame, memoryFlame];
	for (const make of data.diff ? diff.sections : [time, targets, members, ...flames, nameless, functions, threads, growth, rule, system, lost, files]) {
		const section = await make();
		if (section)
			made.push(section);
	}
	// The words stand where the picture does not say it already.
	if (!data.diff)
		made.find(({ id }) => id === 'rule').querySelector('h2').after(document.getElementById('story'));
	main.append(...(data.diff ? [contents(made), ...made] : [made[0], contents(made), ...made.slice(1)]));
	for (const section of made)
		section.start?.();
	document.documentElement.dataset.ready = 'yes';
}

build().catch(error => {
	document.getElementById('main').prepend(el('p', { class: 'notice' }, `This page could not be put together: ${error.message}`));
	throw error;
});
