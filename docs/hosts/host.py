"""Run a folder that ``graphfix ship`` made, with numpy and onnxruntime alone.

Host("shipped").run({"audio": clip})                a model that takes clips
Stream(Host("decoder")).run({"input_ids": tokens})  a model that continues states
"""

import json
from pathlib import Path

import numpy as np
import onnxruntime

NUMPY_NAMES = {"float": "float32", "double": "float64"}


def fit(array, shape, pad=0, front=False):
    """Return an array in a shape: cut or padded at its end, or at its front."""
    if array.shape == tuple(shape):
        return array
    fitted = np.full(shape, pad, array.dtype)
    pairs = list(zip(array.shape, shape, strict=True))
    if front:
        source = tuple(slice(max(0, n - size), n) for n, size in pairs)
        target = tuple(slice(max(0, size - n), size) for n, size in pairs)
    else:
        source = target = tuple(slice(min(n, size)) for n, size in pairs)
    fitted[target] = array[source]
    return fitted


def shape_of(port, sizes):
    """Return the shape of an input or output at these sizes."""
    return tuple(sizes[dim] if isinstance(dim, str) else dim for dim in port["dims"])


def dtype_of(port):
    """Return the dtype of an input, whose type is written ``tensor(float)``."""
    name = port["type"].removeprefix("tensor(").removesuffix(")")
    return np.dtype(NUMPY_NAMES.get(name, name))


def by_name(ports):
    """Return the entries of a list in the manifest by their names."""
    return {port["name"]: port for port in ports}


class Host:
    """The containers of a folder; ``run`` takes what the original takes."""

    def __init__(self, folder, providers=("CPUExecutionProvider",)):
        self.folder, self.providers, self.sessions = Path(folder), list(providers), {}
        self.manifest = json.loads((self.folder / "graphfix.json").read_text(encoding="utf-8"))
        if self.manifest["schema"] != 2:
            raise ValueError(f"{folder}: schema {self.manifest['schema']}; this host reads 2")

    def run_container(self, container, names, feeds):
        """Run a container; return these outputs by name."""
        file = container["file"]
        if file not in self.sessions:
            options = onnxruntime.SessionOptions()
            options.enable_mem_pattern = "DmlExecutionProvider" not in str(self.providers)
            path = self.folder / file
            session = onnxruntime.InferenceSession(path, options, providers=self.providers)
            self.sessions[file] = session
        return dict(zip(names, self.sessions[file].run(names, feeds), strict=True))

    def sizes(self, container, changes):
        """Return the size of each dim: of the container, but for changes, and what follows."""
        sizes = {**container["sizes"], **changes}
        for derived in self.manifest["derived"]:
            total = derived["add"] + sum(n * sizes[dim] for dim, n in derived["of"].items())
            size = total // derived["divide"]
            size = size if derived["least"] is None else max(size, derived["least"])
            sizes[derived["name"]] = size if derived["most"] is None else min(size, derived["most"])
        return sizes

    def run(self, feeds):
        """Run a clip, or a batch of clips of one length; return the outputs by name."""
        axis, batch = self.manifest["axis"], self.manifest["batch"]
        inputs, outputs = (by_name(self.manifest[x]) for x in ("inputs", "outputs"))
        clip, dim = feeds[axis["input"]], axis["dim"]
        length = clip.shape[axis["axis"]]
        containers = [x for x in self.manifest["containers"] if x["sizes"][dim] >= length]
        if length < axis["shortest"] or not containers:
            raise ValueError(f"no container takes a clip of {dim}={length}")
        container = containers[0]
        row_axis = inputs[axis["input"]]["rows"]
        rows = {batch: clip.shape[row_axis]} if batch and row_axis is not None else {}
        valid = self.sizes(container, {dim: length, **rows})
        padded, full = self.sizes(container, rows), self.sizes(container, {})
        fed = {}
        for name, port in inputs.items():
            array = feeds[name]
            if array.shape != shape_of(port, valid):
                raise ValueError(f"{name} is {array.shape}, not {shape_of(port, valid)}")
            if port["kind"] == "relative-lengths":
                array = (array * (length / container["sizes"][dim])).astype(array.dtype)
            array = fit(array, shape_of(port, padded), port["pad"])
            if port["rows"] is not None:  # free rows hold copies
                places = np.arange(shape_of(port, full)[port["rows"]])
                array = array.take(places % array.shape[port["rows"]], port["rows"])
            fed[name] = array
        if self.manifest["lengths"] is not None:
            fed[self.manifest["lengths"]] = np.full(full.get(batch, 1), length, np.int64)
        found = self.run_container(container, [*outputs], fed)
        return {name: fit(array, shape_of(outputs[name], valid)) for name, array in found.items()}


class Stream:
    """The states of one sequence; each ``run`` continues it with what is new."""

    def __init__(self, host):
        self.host, self.manifest, self.streaming = host, host.manifest, host.manifest["stream"]
        self.inputs, self.outputs = (by_name(self.manifest[x]) for x in ("inputs", "outputs"))
        self.outputs_of = {x["input"]: x["output"] for x in self.streaming["states"]}
        self.growing = [x["dim"] for x in self.streaming["caches"] if x["grows"]]
        self.length, self.states, self.kept, self.encoded = 0, {}, {}, {}

    def run(self, feeds):
        """Continue with what is new; return the outputs that are no states, by name.

        Inputs that stay the same, such as an encoder's, may be left out after the first run.
        """
        axis, opening = self.manifest["axis"], self.streaming["opening"]
        if opening and all(name in feeds for name in opening["inputs"]):
            self.encode(feeds, opening)
        self.kept.update(feeds)
        new = feeds[axis["input"]].shape[axis["axis"]]
        length, states, start, parts = self.length, self.states, 0, []
        for container, count in self.split(new, self.containers_for(length + new)):
            size = container["sizes"][axis["dim"]]
            sizes = self.sizes(container, length, count)
            until = self.sizes(container, self.length, start + count)
            padded = self.host.sizes(container, {})
            fed = dict(self.encoded)
            for name, port in self.inputs.items():
                if name in self.outputs_of:
                    fed[name] = self.state(states, port, padded)
                elif name not in fed and not (opening and name in opening["inputs"]):
                    part = fit(self.kept[name], shape_of(port, until))
                    part = fit(part, shape_of(port, sizes), front=True)
                    fed[name] = fit(part, shape_of(port, padded), port["pad"], front=True)
            for cache in self.streaming["caches"]:
                if cache["told"]:
                    valid = sizes[cache["dim"]] - (size - count) * cache["grows"]
                    fed[cache["told"]] = np.array([valid], np.int64)
            found = self.host.run_container(container, list(self.outputs), fed)
            states = {name: found[output] for name, output in self.outputs_of.items()}
            parts.append(
                {
                    name: fit(found[name], shape_of(port, sizes), front=True)
                    for name, port in self.outputs.items()
                    if name not in self.outputs_of.values()
                }
            )
            start, length = start + count, self.length_after(length, count, sizes)
        self.length, self.states = length, states
        return {name: self.join(name, [part[name] for part in parts]) for name in parts[0]}

    def encode(self, feeds, opening):
        """Run the graph of the encoder's caches, once for each encoding."""
        first, container = self.manifest["containers"][0], opening["container"]
        sizes = self.host.sizes(first, container["sizes"])
        fed = {}
        for name in opening["inputs"]:
            port = self.inputs[name]
            fed[name] = fit(feeds[name], shape_of(port, sizes), port["pad"], front=True)
        outputs = opening["gives"]
        found = self.host.run_container(container, list(outputs.values()), fed)
        self.encoded = {name: found[output] for name, output in outputs.items()}

    def state(self, states, port, padded):
        """Return a state in the container's size: zeros at first."""
        if port["name"] not in states:
            return np.zeros(shape_of(port, padded), dtype_of(port))
        return fit(states[port["name"]], shape_of(port, padded), front=True)

    def containers_for(self, total):
        """Return the containers with the smallest caches that hold so many entries."""
        containers = self.manifest["containers"]
        holding = [x for x in containers if all(x["sizes"][dim] >= total for dim in self.growing)]
        if not holding and not self.streaming["rolls"]:
            raise ValueError(f"the caches are full: they do not hold {total} entries")
        caches = (holding or containers[-1:])[0]["sizes"]
        return [x for x in containers if all(x["sizes"][d] == caches[d] for d in self.growing)]

    def split(self, new, containers):
        """Split what is new: a list of containers, each with how many entries it takes."""
        by_size = {x["sizes"][self.manifest["axis"]["dim"]]: x for x in containers}
        parts, rest, largest = [], new, max(by_size)
        if not self.streaming["joins"] and new not in by_size:
            raise ValueError(f"{new} new entries: this model takes {sorted(by_size)} at once")
        if self.streaming["partial"] and not self.states and new % largest:
            count = new % largest
            parts.append((by_size[min(n for n in by_size if n >= count)], count))
            rest -= count
        while rest:
            size = max((n for n in by_size if n <= rest), default=None)
            if size is None:
                raise ValueError(f"{new} new entries are no sum of {sorted(by_size)}")
            parts.append((by_size[size], size))
            rest -= size
        return parts

    def sizes(self, container, length, new):
        """Return the original's sizes behind so many entries, with so many new ones."""
        steady = [x["dim"] for x in self.streaming["caches"] if not x["grows"]]
        changes = {
            dim: size
            for name, array in self.kept.items()
            for dim, size in zip(self.inputs[name]["dims"], array.shape, strict=True)
            if dim in steady
        }
        changes |= dict.fromkeys(self.growing, length) | {self.manifest["axis"]["dim"]: new}
        return self.host.sizes(container, changes)

    def length_after(self, length, count, sizes):
        """Return the length of the caches after a step."""
        for link in self.streaming["states"]:
            if link["axis"] is not None:
                return shape_of(self.outputs[link["output"]], sizes)[link["axis"]]
        return length + count

    def join(self, name, parts):
        """Join an output of several parts along the axis that follows what is new."""
        for axis, dim in enumerate(self.outputs[name]["dims"]):
            if self.follows(dim):
                return np.concatenate(parts, axis)
        return parts[-1]

    def has_row_per_token(self, mask):
        """Return whether a mask says for each new token what it sees."""
        return len(mask["dims"]) > 1 and self.follows(mask["dims"][-2])

    def follows(self, dim):
        """Return whether a dim follows from how much is new."""
        derived = {x["name"]: x["of"] for x in self.manifest["derived"]}
        return dim == self.manifest["axis"]["dim"] or any(map(self.follows, derived.get(dim, ())))

    def greedy(self, prompt, count, feeds=None):
        """Return the tokens that follow a prompt, each the most likely one.

        The other inputs, such as what an encoder reads, are ``feeds``.
        """
        tokens, new, seen = [], list(prompt), self.length
        for _ in range(count):
            sizes = self.sizes(self.manifest["containers"][0], self.length, len(new))
            values = {"tokens": new, "positions": np.arange(seen, seen + len(new))}
            text = {}
            for name, port in self.inputs.items():
                if name in self.outputs_of or port["kind"] not in (*values, "mask"):
                    continue
                array = np.broadcast_to(
                    values.get(port["kind"], port["valid"]), shape_of(port, sizes)
                )
                if port["kind"] == "mask" and self.has_row_per_token(port):
                    array = np.where(np.tri(*array.shape[-2:], self.length), array, port["pad"])
                text[name] = array.astype(dtype_of(port))
            logits = next(iter(self.run({**text, **(feeds or {})}).values()))
            seen, feeds = seen + len(new), None
            new = [int(logits[0, -1].argmax())]
            tokens += new
        return tokens
