// Numbers for people, as spikewatch show writes them.

const sizes = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

export function bytes(value) {
	let unit = 0;
	let size = Math.abs(value);
	while (size >= 1024 && unit < sizes.length - 1) {
		size /= 1024;
		unit++;
	}
	const digits = unit === 0 || size >= 100 ? 0 : size >= 10 ? 1 : 2;
	return `${value < 0 ? '\u2212' : ''}${trimmed(size, digits)} ${sizes[unit]}`;
}

function trimmed(value, digits) {
	const text = value.toFixed(digits);
	return text.includes('.') ? text.replace(/\.?0+$/, '') : text;
}

export function duration(ns) {
	if (ns === 0)
		return '0 s';
	const abs = Math.abs(ns);
	const sign = ns < 0 ? '\u2212' : '';
	for (const [unit, size] of [['h', 3.6e12], ['min', 6e10], ['s', 1e9], ['ms', 1e6], ['\u00b5s', 1e3]]) {
		if (abs >= size && !(unit === 'min' && abs < 1.2e11) && !(unit === 'h' && abs < 7.2e12))
			return `${sign}${trimmed(abs / size, 2)} ${unit}`;
	}
	return `${sign}${abs} ns`;
}

// Of a plot or a rule: "percent", "cores", "bytes", "count", "per_second".
export function quantity(value, unit) {
	if (value === null || value === undefined || !Number.isFinite(value))
		return '\u2013';
	switch (unit) {
	case 'bytes':
		return bytes(value);
	case 'percent':
		return `${trimmed(value, 1)} %`;
	case 'cores':
		return `${trimmed(value, 2)} ${trimmed(value, 2) === '1' ? 'core' : 'cores'}`;
	case 'per_second':
		return `${trimmed(value, value < 10 ? 1 : 0)} /s`;
	default:
		return trimmed(value, value < 10 ? 2 : 0);
	}
}

export function count(value) {
	return String(value).replace(/\B(?=(\d{3})+$)/g, '\u202f');
}

// Seconds since the trigger.
export function offset(seconds, digits = 3) {
	const text = trimmed(Math.abs(seconds), digits);
	return seconds < 0 && text !== '0' ? `\u2212${text} s` : `${text === '0' ? '' : '+'}${text} s`;
}

export function share(part, all) {
	return all > 0 ? `${(100 * part / all).toFixed(1)} %` : '\u2013';
}
