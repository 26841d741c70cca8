// Bundles src/ and the libraries into one program and one style, puts them into template.html, and writes the page as arrays of C.
// node build.mjs OUT, where OUT/node_modules has what package-lock.json says.
import { createHash } from 'node:crypto';
import { readFileSync, readdirSync, renameSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const out = resolve(process.argv[2]);
const { buildSync } = createRequire(join(out, 'package.json'))('esbuild');

const bundle = buildSync({
	entryPoints: [join(here, 'src/main.js')],
	bundle: true,
	minify: true,
	charset: 'ascii',
	format: 'iife',
	target: ['chrome90', 'firefox90', 'safari15'],
	legalComments: 'none', // the licences are in the page, whole
	nodePaths: [join(out, 'node_modules')],
	outdir: join(out, 'bundle'),
	metafile: true,
	write: false,
});

const text = suffix => bundle.outputFiles.find(file => file.path.endsWith(suffix)).text;
// The only thing that could end the element early.
const script = text('.js').trim().replaceAll('</script', '<\\/script').replaceAll('<!--', '<\\!--');
const style = text('.css').trim();
if (style.includes('</'))
	throw new Error('the style would end its element');
const hash = content => `'sha256-${createHash('sha256').update(content).digest('base64')}'`;

// Whose work is in the bundle, with the licence that each of them came with.
function packages() {
	const names = new Set();
	for (const path of Object.keys(bundle.metafile.inputs)) {
		const match = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path);
		if (match)
			names.add(match[1]);
	}
	return [...names].sort().map(name => {
		const root = join(out, 'node_modules', name);
		const { version, license } = JSON.parse(readFileSync(join(root, 'package.json')));
		const file = readdirSync(root).find(entry => /^licen[cs]e/i.test(entry));
		if (!file)
			throw new Error(`${name} has no licence`);
		return { name, version, license, text: readFileSync(join(root, file), 'utf8').trim() };
	});
}

// The same text is said once.
function licences() {
	const texts = new Map();
	for (const { name, version, license, text } of packages()) {
		const entry = texts.get(text) ?? { license, names: [] };
		entry.names.push(`${name} ${version}`);
		texts.set(text, entry);
	}
	const escape = content => content.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
	return [...texts].map(([content, { license, names }]) =>
		`<h3>${escape(names.join(', '))}: ${escape(license)}</h3>\n<pre>${escape(content)}</pre>`).join('\n');
}

const parts = readFileSync(join(here, 'template.html'), 'utf8')
	.replace('@SCRIPT-HASH@', () => hash(script)).replace('@STYLE-HASH@', () => hash(style))
	.replace('@LICENCES@', licences)
	.split(/@(?:TITLE|STORY|DATA)@\n?/);
if (parts.length !== 4)
	throw new Error('the template has not four parts');
// The last ones to be put in: they may hold anything.
parts[0] = parts[0].replace('@STYLE@', () => style);
parts[3] = parts[3].replace('@SCRIPT@', () => script);

const arrays = parts.map((part, index) =>
	`static const unsigned char report_page_${index}[] = {\n${[...Buffer.from(part), 0].join(',').replace(/(.{1,118},)/g, '$1\n')}\n};\n`);
writeFileSync(join(out, 'page.h.tmp'), `/* Made by cli/report/build.mjs. */\n${arrays.join('')}`);
renameSync(join(out, 'page.h.tmp'), join(out, 'page.h'));
console.log(`script ${script.length} bytes, style ${style.length} bytes, page ${parts.join('').length} bytes`);
