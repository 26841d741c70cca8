// The incident's files, from the elements of the page that hold them.

const type = 'application/octet-stream;base64';
const elements = new Map();

for (const element of document.querySelectorAll(`script[type="${type}"][data-spikewatch="file"]`))
	elements.set(element.dataset.name, element);

export const data = JSON.parse(document.getElementById('report-data').textContent);

export function names() {
	return [...elements.keys()];
}

export function has(name) {
	return elements.has(name);
}

export function info(name) {
	const { bytes, crc32 } = elements.get(name).dataset;
	return { name, bytes: Number(bytes), crc32 };
}

export function bytesOf(name) {
	const letters = atob(elements.get(name).textContent);
	const bytes = new Uint8Array(letters.length);
	for (let i = 0; i < letters.length; i++)
		bytes[i] = letters.charCodeAt(i);
	return bytes;
}

export function textOf(name) {
	return new TextDecoder().decode(bytesOf(name));
}
