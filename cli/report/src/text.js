// Untrusted text: it gets into the page as text only, and characters that cannot be seen are escaped.

// Control characters, and those that are invisible or change the direction of what follows.
const unseen = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu;

export function visible(text) {
	return String(text).replace(unseen, char => {
		const code = char.codePointAt(0);
		return code < 0x80 ? `\\x${code.toString(16).padStart(2, '0')}` : `\\u{${code.toString(16)}}`;
	});
}

// Text from a table or a profile of Spikewatch, where the backslash itself was escaped.
export function unescaped(text) {
	return text.replaceAll('\\x5c', '\\').replaceAll('\\x3b', ';');
}

// el('p', { class: 'x' }, 'text', node, ...): strings become text, never markup. A function is a listener.
export function el(name, attributes = {}, ...children) {
	const element = document.createElement(name);
	for (const [key, value] of Object.entries(attributes)) {
		if (typeof value === 'function')
			element.addEventListener(key, value);
		else if (value !== undefined && value !== null && value !== false)
			element.setAttribute(key, value === true ? '' : value);
	}
	for (const child of children.flat(Infinity)) {
		if (child !== undefined && child !== null)
			element.append(child instanceof Node ? child : visible(child));
	}
	return element;
}
