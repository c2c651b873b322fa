// node drive.mjs ORT HOST FOLDER CALLS RESULTS: run calls that a test wrote, and write what came out.
import fs from 'node:fs';
import {createRequire} from 'node:module';
import path from 'node:path';
import {pathToFileURL} from 'node:url';

const [package_, hostFile, folder, calls, results] = process.argv.slice(2);
const ort = createRequire(package_ + path.sep)('onnxruntime-node');
const {Host, Stream} = await import(pathToFileURL(hostFile).href);
const arrays = {
  float32: Float32Array, float64: Float64Array, int64: BigInt64Array, int32: Int32Array, bool: Uint8Array,
};
const read = (file) => JSON.parse(fs.readFileSync(file, 'utf8'));

function tensor({type, dims, data}) {
  const values = type === 'int64' ? data.map(BigInt) : data;
  return new ort.Tensor(type, arrays[type].from(values), dims);
}

const host = new Host(ort, read(path.join(folder, 'graphfix.json')), (file) => path.join(folder, file));
const runner = host.manifest.stream === null ? host : new Stream(host);
const found = [];
for (const call of read(calls)) {
  const feeds = Object.fromEntries(Object.entries(call).map(([name, x]) => [name, tensor(x)]));
  const outputs = await runner.run(feeds);
  const plain = ([name, x]) => [name, {type: x.type, dims: x.dims, data: Array.from(x.data, Number)}];
  found.push(Object.fromEntries(Object.entries(outputs).map(plain)));
}
fs.writeFileSync(results, JSON.stringify(found));
