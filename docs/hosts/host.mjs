// Run a folder that `graphfix ship` made, with onnxruntime-node or onnxruntime-web alone.
//
// const host = new Host(ort, manifest, (file) => path.join(folder, file));
// await host.run({audio: clip})                        a model that takes clips
// await new Stream(host).run({input_ids: tokens})      a model that continues states
//
// Inputs and outputs are tensors of ONNX Runtime, by name, in the original model's shapes.

const product = (numbers) => numbers.reduce((a, b) => a * b, 1);
const same = (a, b) => a.length === b.length && a.every((n, i) => n === b[i]);
const last = (list) => list[list.length - 1];
const TYPES = {
  float: ['float32', Float32Array], double: ['float64', Float64Array], float16: ['float16', Uint16Array],
  int64: ['int64', BigInt64Array], int32: ['int32', Int32Array], int8: ['int8', Int8Array],
};

export class Host {
  constructor(ort, manifest, pathOf, options = {}) {
    if (manifest.schema !== 2) throw new Error(`schema ${manifest.schema}; this host reads 2`);
    Object.assign(this, {ort, manifest, pathOf, options, sessions: new Map()});
    this.inputs = new Map(manifest.inputs.map((port) => [port.name, port]));
    this.outputs = new Map(manifest.outputs.map((port) => [port.name, port]));
  }

  // A tensor in a shape: cut or padded at its end, or at its front; `rows` repeats along an axis.
  fit(tensor, shape, pad = 0, {front = false, rows = null} = {}) {
    if (same(tensor.dims, shape)) return tensor;
    const data = new tensor.data.constructor(product(shape));
    if (pad && tensor.type === 'float16') throw new Error('float16 is padded with zeros only');
    if (pad) data.fill(typeof tensor.data[0] === 'bigint' ? BigInt(pad) : pad);
    for (let i = 0; i < data.length; i++) {
      let inside = true;
      for (let axis = shape.length - 1, rest = i, stride = 1, from = 0; inside; axis--) {
        if (axis < 0) { data[i] = tensor.data[from]; break; }
        const size = tensor.dims[axis];
        let at = rest % shape[axis];
        at = axis === rows ? at % size : front ? at + size - shape[axis] : at;
        inside = at >= 0 && at < size;
        from += at * stride;
        stride *= size;
        rest = Math.floor(rest / shape[axis]);
      }
    }
    return new this.ort.Tensor(tensor.type, data, shape);
  }

  int64(values) {
    return new this.ort.Tensor('int64', BigInt64Array.from(values.map(BigInt)), [values.length]);
  }

  // The size of each dim: of the container, but for changes, and the sizes that follow from them.
  sizes(container, changes = {}) {
    const sizes = {...container.sizes, ...changes};
    for (const {name, of, add, divide, least, most} of this.manifest.derived) {
      const total = Object.entries(of).reduce((sum, [dim, n]) => sum + n * sizes[dim], add);
      sizes[name] = Math.floor(total / divide);
      if (least !== null) sizes[name] = Math.max(sizes[name], least);
      if (most !== null) sizes[name] = Math.min(sizes[name], most);
    }
    return sizes;
  }

  shapeOf(port, sizes) {
    return port.dims.map((dim) => (typeof dim === 'string' ? sizes[dim] : dim));
  }

  async runContainer(container, names, feeds) {
    const file = container.file;
    if (!this.sessions.has(file)) {
      this.sessions.set(file, this.ort.InferenceSession.create(await this.pathOf(file), this.options));
    }
    return (await this.sessions.get(file)).run(feeds, names);
  }

  // Run a clip, or a batch of clips of one length.
  async run(feeds) {
    const {axis, batch, containers, lengths} = this.manifest;
    const clip = feeds[axis.input], port = this.inputs.get(axis.input);
    const length = clip.dims[axis.axis], rows = port.rows === null ? 1 : clip.dims[port.rows];
    const container = containers.find((x) => x.sizes[axis.dim] >= length);
    if (container === undefined || length < axis.shortest) {
      throw new Error(`no container takes a clip of ${axis.dim}=${length}`);
    }
    const held = batch === null ? {} : {[batch]: rows};
    const valid = this.sizes(container, {...held, [axis.dim]: length});
    const padded = this.sizes(container, held), full = this.sizes(container);
    const fed = {};
    for (const [name, input] of this.inputs) {
      let tensor = feeds[name];
      if (!same(tensor.dims, this.shapeOf(input, valid))) {
        throw new Error(`${name} is [${tensor.dims}], not [${this.shapeOf(input, valid)}]`);
      }
      if (input.kind === 'relative-lengths') {
        const shares = tensor.data.map((x) => x * (length / container.sizes[axis.dim]));
        tensor = new this.ort.Tensor(tensor.type, shares, tensor.dims);
      }
      tensor = this.fit(tensor, this.shapeOf(input, padded), input.pad);
      fed[name] = this.fit(tensor, this.shapeOf(input, full), 0, {rows: input.rows}); // copies
    }
    if (lengths !== null) fed[lengths] = this.int64(Array(container.sizes[batch] ?? 1).fill(length));
    const found = await this.runContainer(container, [...this.outputs.keys()], fed);
    for (const [name, output] of this.outputs) {
      found[name] = this.fit(found[name], this.shapeOf(output, valid));
    }
    return found;
  }
}

// The states of one sequence; each run continues it with what is new.
export class Stream {
  constructor(host) {
    Object.assign(this, {host, length: 0, states: {}, kept: {}, encoded: {}});
    this.dim = host.manifest.axis.dim;
    this.streaming = host.manifest.stream;
    this.outputsOf = new Map(this.streaming.states.map((link) => [link.input, link.output]));
    this.growing = this.streaming.caches.filter((x) => x.grows).map((x) => x.dim);
    this.steady = this.streaming.caches.filter((x) => !x.grows).map((x) => x.dim);
  }

  // Continue with what is new; return the outputs that are no states.
  // Inputs that stay the same, such as an encoder's, may be left out after the first run.
  async run(feeds) {
    const {host, streaming: {caches, opening}} = this, {axis} = host.manifest;
    const encoder = opening === null ? [] : opening.inputs;
    if (encoder.length && encoder.every((name) => name in feeds)) await this.encode(feeds, opening);
    Object.assign(this.kept, feeds);
    const states = new Set(this.outputsOf.values());
    const names = [...host.outputs.keys()].filter((name) => !states.has(name));
    const count = feeds[axis.input].dims[axis.axis], parts = [];
    let {length, states: held} = this, start = 0;
    for (const [container, valid] of this.split(count, this.containersFor(length + count))) {
      const sizes = this.sizes(container, length, valid), padded = host.sizes(container);
      const until = this.sizes(container, this.length, start + valid);
      const fed = {...this.encoded};
      for (const [name, port] of host.inputs) {
        const shape = host.shapeOf(port, padded);
        if (this.outputsOf.has(name)) {
          fed[name] = held[name] ? host.fit(held[name], shape, 0, {front: true}) : this.tensor(port, shape);
        } else if (!(name in fed) && !encoder.includes(name)) {
          const ending = host.fit(this.kept[name], host.shapeOf(port, until));
          const part = host.fit(ending, host.shapeOf(port, sizes), 0, {front: true});
          fed[name] = host.fit(part, shape, port.pad, {front: true});
        }
      }
      for (const {dim, told, grows} of caches) {
        const padding = grows ? container.sizes[this.dim] - valid : 0;
        if (told) fed[told] = host.int64([sizes[dim] - padding]);
      }
      const found = await host.runContainer(container, [...host.outputs.keys()], fed);
      held = Object.fromEntries([...this.outputsOf].map(([name, output]) => [name, found[output]]));
      const fitted = (name) => host.fit(found[name], host.shapeOf(host.outputs.get(name), sizes), 0, {front: true});
      parts.push(Object.fromEntries(names.map((name) => [name, fitted(name)])));
      start += valid;
      length = this.lengthAfter(length + valid, sizes);
    }
    Object.assign(this, {length, states: held});
    return Object.fromEntries(names.map((name) => [name, this.join(name, parts.map((x) => x[name]))]));
  }

  // Run the graph of the encoder's caches, once for each encoding.
  async encode(feeds, {container, inputs, gives}) {
    const sizes = this.host.sizes(this.host.manifest.containers[0], container.sizes), fed = {};
    for (const name of inputs) {
      const port = this.host.inputs.get(name), shape = this.host.shapeOf(port, sizes);
      fed[name] = this.host.fit(feeds[name], shape, port.pad, {front: true});
    }
    const found = await this.host.runContainer(container, Object.values(gives), fed);
    this.encoded = Object.fromEntries(Object.entries(gives).map(([name, output]) => [name, found[output]]));
  }

  // A tensor for an input: the value of each element by its indices along the last two axes.
  tensor(port, shape, valueAt = () => 0) {
    const name = port.type.slice('tensor('.length, -1);
    const [type, array] = TYPES[name] ?? [name, Uint8Array];
    const data = new array(product(shape));
    const plain = typeof data[0] === 'bigint' ? BigInt : Number;
    const width = last(shape), height = shape.length > 1 ? shape[shape.length - 2] : 1;
    for (let i = 0; i < data.length; i++) {
      data[i] = plain(valueAt(i % width, Math.floor(i / width) % height));
    }
    return new this.host.ort.Tensor(type, data, shape);
  }

  // The containers with the smallest caches that hold so many entries.
  containersFor(total) {
    const {containers} = this.host.manifest;
    const holds = (x) => this.growing.every((dim) => x.sizes[dim] >= total);
    const smallest = containers.find(holds) ?? (this.streaming.rolls ? last(containers) : null);
    if (smallest === null) throw new Error(`the caches are full: they do not hold ${total} entries`);
    return containers.filter((x) => this.growing.every((dim) => x.sizes[dim] === smallest.sizes[dim]));
  }

  // Split what is new: a list of containers, each with how many entries it takes.
  split(count, containers) {
    const {joins, partial} = this.streaming, size = (x) => x.sizes[this.dim];
    const sorted = [...containers].sort((a, b) => size(a) - size(b)), largest = size(last(sorted));
    const parts = [];
    let rest = count;
    if (!joins && !sorted.some((x) => size(x) === count)) throw new Error(`${count} at once: no container takes them`);
    if (partial && !Object.keys(this.states).length && count % largest) {
      rest = count % largest;
      parts.push([sorted.find((x) => size(x) >= rest), rest]);
      rest = count - rest;
    }
    while (rest) {
      const container = last(sorted.filter((x) => size(x) <= rest));
      if (container === undefined) throw new Error(`${count} is no sum of [${sorted.map(size)}]`);
      parts.push([container, size(container)]);
      rest -= size(container);
    }
    return parts;
  }

  // The original's sizes behind so many entries, with so many new ones.
  sizes(container, length, count) {
    const changes = {[this.dim]: count};
    for (const dim of this.growing) changes[dim] = length;
    for (const [name, tensor] of Object.entries(this.kept)) {
      this.host.inputs.get(name).dims.forEach((dim, axis) => {
        if (this.steady.includes(dim)) changes[dim] = tensor.dims[axis];
      });
    }
    return this.host.sizes(container, changes);
  }

  lengthAfter(counted, sizes) {
    const link = this.streaming.states.find((x) => x.axis !== null);
    return link ? this.host.shapeOf(this.host.outputs.get(link.output), sizes)[link.axis] : counted;
  }

  follows(dim) {
    const derived = this.host.manifest.derived.find((x) => x.name === dim);
    return dim === this.dim || Object.keys(derived?.of ?? {}).some((x) => this.follows(x));
  }

  // Join an output of several parts along the axis that follows how much is new.
  join(name, parts) {
    const axis = this.host.outputs.get(name).dims.findIndex((dim) => this.follows(dim));
    if (axis < 0 || parts.length === 1) return last(parts);
    const shape = [...parts[0].dims], inner = product(shape.slice(axis + 1));
    shape[axis] = parts.reduce((sum, part) => sum + part.dims[axis], 0);
    const data = new parts[0].data.constructor(product(shape));
    let at = 0;
    for (let outer = 0; outer < product(shape.slice(0, axis)); outer++) {
      for (const part of parts) {
        const size = part.dims[axis] * inner;
        data.set(part.data.subarray(outer * size, (outer + 1) * size), at);
        at += size;
      }
    }
    return new this.host.ort.Tensor(parts[0].type, data, shape);
  }

  // The tokens that follow a prompt, each the most likely one. The other inputs, such as what an
  // encoder reads, are `feeds`.
  async greedy(prompt, count, feeds = {}) {
    const {containers, inputs} = this.host.manifest, tokens = [];
    let added = [...prompt], seen = this.length;
    for (; tokens.length < count; tokens.push(...added)) {
      const sizes = this.sizes(containers[0], this.length, added.length);
      for (const port of inputs.filter((x) => !this.outputsOf.has(x.name) && !(x.name in feeds))) {
        const causal = port.dims.length > 1 && this.follows(port.dims[port.dims.length - 2]);
        const sees = (i, row) => !causal || i <= this.length + row;
        const values = {
          tokens: (i) => added[i],
          positions: (i) => seen + i,
          mask: (i, row) => (sees(i, row) ? port.valid : port.pad),
        };
        if (!(port.kind in values)) continue;
        feeds[port.name] = this.tensor(port, this.host.shapeOf(port, sizes), values[port.kind]);
      }
      const {dims, data} = Object.values(await this.run(feeds))[0];
      const logits = data.subarray(data.length - last(dims));
      seen += added.length;
      feeds = {};
      added = [logits.reduce((best, x, i) => (x > logits[best] ? i : best), 0)];
    }
    return tokens;
  }
}
