// Reads a profile in pprof's format (profile.proto, gzip) as far as flame graphs need it. Nothing in it is trusted: whatever is out of
// place ends the reading with an error, and the page says so.

async function gunzip(bytes) {
	const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
	return new Uint8Array(await new Response(stream).arrayBuffer());
}

// A message is a row of fields: visit(number, value, message), where message is a reader of the bytes if there are any.
class Reader {
	constructor(bytes, at = 0, end = bytes.length) {
		Object.assign(this, { bytes, at, end });
	}

	varint() {
		let value = 0, scale = 1;
		for (let i = 0; i < 10; i++) {
			if (this.at >= this.end)
				throw new Error('the profile is cut off');
			const byte = this.bytes[this.at++];
			value += (byte & 0x7f) * scale;
			if (byte < 0x80)
				return value;
			scale *= 128;
		}
		throw new Error('the profile is damaged');
	}

	part() {
		const size = this.varint();
		if (size > this.end - this.at)
			throw new Error('the profile is cut off');
		const part = new Reader(this.bytes, this.at, this.at + size);
		this.at += size;
		return part;
	}

	fields(visit) {
		while (this.at < this.end) {
			const tag = this.varint();
			const number = Math.floor(tag / 8);
			switch (tag % 8) {
			case 0: visit(number, this.varint()); break;
			case 1: this.at += 8; break;
			case 2: visit(number, 0, this.part()); break;
			case 5: this.at += 4; break;
			default: throw new Error('the profile is damaged');
			}
		}
	}

	// Repeated numbers, packed or one by one.
	numbers(into) {
		while (this.at < this.end)
			into.push(this.varint());
	}

	text() {
		return new TextDecoder().decode(this.bytes.subarray(this.at, this.end));
	}
}

function push(list, value, part) {
	if (part)
		part.numbers(list);
	else
		list.push(value);
}

function message(part, names, lists = {}) {
	const result = {};
	for (const name of Object.values(lists))
		result[name] = [];
	part.fields((number, value, inner) => {
		if (number in lists)
			push(result[lists[number]], value, inner);
		else if (number in names)
			result[names[number]] = inner ?? value;
	});
	return result;
}

function readLocation(part) {
	const location = { id: 0, mapping: 0, lines: [] };
	part.fields((number, value, inner) => {
		if (number === 1)
			location.id = value;
		else if (number === 2)
			location.mapping = value;
		else if (number === 4 && inner)
			location.lines.push(message(inner, { 1: 'function', 2: 'line' }));
	});
	return location;
}

function readSample(part) {
	const sample = { locations: [], values: [], labels: [] };
	part.fields((number, value, inner) => {
		if (number === 1)
			push(sample.locations, value, inner);
		else if (number === 2)
			push(sample.values, value, inner);
		else if (number === 3 && inner)
			sample.labels.push(message(inner, { 1: 'key', 2: 'text', 3: 'number' }));
	});
	return sample;
}

function readProfile(bytes) {
	const profile = { types: [], samples: [], mappings: new Map(), locations: new Map(), functions: new Map(), strings: [],
		defaultType: 0, beginNs: 0, durationNs: 0 };
	new Reader(bytes).fields((number, value, part) => {
		if (number === 14)
			profile.defaultType = value;
		else if (number === 9)
			profile.beginNs = value;
		else if (number === 10)
			profile.durationNs = value;
		if (!part)
			return;
		if (number === 1) {
			profile.types.push(message(part, { 1: 'type', 2: 'unit' }));
		} else if (number === 2) {
			profile.samples.push(readSample(part));
		} else if (number === 3) {
			const mapping = message(part, { 1: 'id', 5: 'file', 6: 'buildId' });
			profile.mappings.set(mapping.id, mapping);
		} else if (number === 4) {
			const location = readLocation(part);
			profile.locations.set(location.id, location);
		} else if (number === 5) {
			const func = message(part, { 1: 'id', 2: 'name', 4: 'file' });
			profile.functions.set(func.id, func);
		} else if (number === 6) {
			profile.strings.push(part.text());
		}
	});
	return profile;
}

// The values that a flame graph shows: CPU time or memory if there are any, not how many samples.
function valueIndex(profile) {
	const names = profile.types.map(({ type }) => profile.strings[type]);
	const index = names.findIndex(name => name === 'cpu' || name === 'memory');
	return index >= 0 ? index : Math.max(0, profile.types.findIndex(({ type }) => type === profile.defaultType));
}

// The name of what has none, as lib/profile/profile.c makes it for the tables: after its module.
function madeName(module) {
	const base = module.split('/').pop();
	return base === '' ? '[unknown]' : base.startsWith('[') ? base : `[${base}]`;
}

// Steps of the label "time", as lib/profile/profile.c has them.
const stepOf = durationNs => Math.max(10, Math.floor(durationNs / 1e9)) / 1000;

// { unit, step, buildIds, stacks: [{ phase, own, at, process, pid, thread, tid, frames: [{ name, module, file, line }] (the root first), value }] }.
// own: of the target. at: from when on, in seconds since firedNs by the wall clock, within a step; undefined: not known.
export async function load(compressed, firedNs) {
	const profile = readProfile(await gunzip(compressed));
	const string = index => profile.strings[index] ?? '';
	const which = valueIndex(profile);
	const cache = new Map();

	function frames(id) {
		if (!cache.has(id)) {
			const location = profile.locations.get(id);
			const module = string(profile.mappings.get(location?.mapping)?.file);
			const lines = (location?.lines ?? []).map(({ function: func, line = 0 }) => {
				const { name, file } = profile.functions.get(func) ?? {};
				return { name: string(name) || madeName(module), file: string(file), line, module };
			});
			// The innermost of what was inlined comes first.
			cache.set(id, lines.length ? lines.reverse() : [{ name: madeName(module), file: '', line: 0, module }]);
		}
		return cache.get(id);
	}

	return {
		unit: string(profile.types[which]?.unit),
		step: stepOf(profile.durationNs),
		buildIds: new Map([...profile.mappings.values()].map(mapping => [string(mapping.file), string(mapping.buildId)])),
		stacks: profile.samples.map(sample => {
			const labels = Object.fromEntries(sample.labels.map(label =>
				[string(label.key), label.text ? string(label.text) : label.number ?? 0]));
			return {
				phase: labels.phase === 'before' ? 'before' : 'during',
				own: labels.target !== 'no',
				at: labels.time === undefined ? undefined : (profile.beginNs - firedNs) / 1e9 + labels.time / 1000,
				process: labels.process ?? '', pid: labels.process_id,
				thread: labels.thread ?? '', tid: labels.thread_id,
				frames: sample.locations.slice().reverse().flatMap(frames),
				value: sample.values[which] ?? 0,
			};
		}),
	};
}
