// Run a folder that `graphfix ship` made, with Microsoft.ML.OnnxRuntime alone.
//
// using var host = new Host("shipped", new SessionOptions());
// var outputs = host.Run(new Dictionary<string, HostTensor> { ["audio"] = clip });   a model of clips
// outputs = new HostStream(host).Run(...);                                           a model of states
//
// Inputs and outputs are tensors by name, in the original model's shapes.
using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Runtime.InteropServices;
using System.Text.Json;
using Microsoft.ML.OnnxRuntime;
using Microsoft.ML.OnnxRuntime.Tensors;

namespace Graphfix
{
    public sealed class HostTensor
    {
        public readonly TensorElementType Type;
        public readonly long[] Shape;
        public readonly byte[] Bytes; // row-major

        public HostTensor(TensorElementType type, long[] shape, byte[] bytes)
        {
            Type = type;
            Shape = shape;
            Bytes = bytes;
        }

        public static HostTensor Of<T>(TensorElementType type, T[] values, params long[] shape) where T : unmanaged
        {
            return new HostTensor(type, shape, MemoryMarshal.AsBytes(values.AsSpan()).ToArray());
        }

        public T[] As<T>() where T : unmanaged
        {
            return MemoryMarshal.Cast<byte, T>(Bytes).ToArray();
        }

        public static long Count(IEnumerable<long> shape)
        {
            return shape.Aggregate(1L, (product, size) => product * size);
        }

        // One element of a type, such as the value of padding.
        public static byte[] Element(TensorElementType type, double value)
        {
            switch (type)
            {
                case TensorElementType.Float: return BitConverter.GetBytes((float)value);
                case TensorElementType.Double: return BitConverter.GetBytes(value);
                case TensorElementType.Float16: return BitConverter.GetBytes(((Float16)(float)value).value);
                case TensorElementType.Int64: return BitConverter.GetBytes((long)value);
                case TensorElementType.Int32: return BitConverter.GetBytes((int)value);
                case TensorElementType.Int8: return new[] { (byte)(sbyte)value };
                case TensorElementType.UInt8: return new[] { (byte)value };
                case TensorElementType.Bool: return new[] { (byte)(value != 0 ? 1 : 0) };
                default: throw new ArgumentException("element type " + type);
            }
        }

        // The value of each element is a function of its indices along the last two axes.
        public static HostTensor Filled(TensorElementType type, long[] shape, Func<long, long, double> valueAt)
        {
            long last = shape.Length == 0 ? 1 : shape[shape.Length - 1], count = Count(shape);
            long rows = shape.Length < 2 ? 1 : shape[shape.Length - 2];
            int width = Element(type, 0).Length;
            var bytes = new byte[count * width];
            for (long i = 0; i < count; i++) Element(type, valueAt(i % last, i / last % rows)).CopyTo(bytes, i * width);
            return new HostTensor(type, shape, bytes);
        }

        // A tensor in a shape: cut or padded at its end, or at its front; `rows` repeats along an axis.
        public HostTensor Fit(long[] shape, double pad = 0, bool front = false, int rows = -1)
        {
            if (Shape.SequenceEqual(shape)) return this;
            int width = Element(Type, 0).Length;
            HostTensor fitted = Filled(Type, shape, (i, row) => pad);
            for (long i = 0; i < Count(shape); i++)
            {
                bool inside = true;
                long rest = i, stride = 1, from = 0;
                for (int axis = shape.Length - 1; axis >= 0; axis--)
                {
                    long size = Shape[axis], at = rest % shape[axis];
                    at = axis == rows ? at % size : front ? at + size - shape[axis] : at;
                    inside = inside && at >= 0 && at < size;
                    from += at * stride;
                    stride *= size;
                    rest /= shape[axis];
                }
                if (inside) Buffer.BlockCopy(Bytes, (int)(from * width), fitted.Bytes, (int)(i * width), width);
            }
            return fitted;
        }

        public static HostTensor Join(IReadOnlyList<HostTensor> parts, int axis)
        {
            var shape = (long[])parts[0].Shape.Clone();
            shape[axis] = parts.Sum(part => part.Shape[axis]);
            int outer = (int)Count(shape.Take(axis));
            var bytes = new List<byte>();
            for (int i = 0; i < outer; i++)
            {
                foreach (HostTensor part in parts)
                {
                    int size = part.Bytes.Length / outer;
                    bytes.AddRange(new ArraySegment<byte>(part.Bytes, i * size, size));
                }
            }
            return new HostTensor(parts[0].Type, shape, bytes.ToArray());
        }
    }

    // The containers of a folder; Run takes what the original takes.
    public sealed class Host : IDisposable
    {
        public readonly JsonElement Manifest;
        public readonly Dictionary<string, JsonElement> Inputs, Outputs;
        private readonly string folder;
        private readonly SessionOptions options;
        private readonly Dictionary<string, InferenceSession> sessions = new Dictionary<string, InferenceSession>();

        public Host(string folder, SessionOptions options)
        {
            this.folder = folder;
            this.options = options;
            Manifest = JsonDocument.Parse(File.ReadAllText(Path.Combine(folder, "graphfix.json"))).RootElement;
            if (Manifest.GetProperty("schema").GetInt32() != 2) throw new InvalidDataException("this host reads schema 2");
            Inputs = Manifest.GetProperty("inputs").EnumerateArray().ToDictionary(x => Text(x, "name"));
            Outputs = Manifest.GetProperty("outputs").EnumerateArray().ToDictionary(x => Text(x, "name"));
        }

        public static string Text(JsonElement of, string name) => of.GetProperty(name).GetString();

        public static long? Number(JsonElement of, string name)
        {
            JsonElement value = of.GetProperty(name);
            return value.ValueKind == JsonValueKind.Null ? (long?)null : value.GetInt64();
        }

        public static long SizeOf(JsonElement container, string dim)
        {
            return container.GetProperty("sizes").GetProperty(dim).GetInt64();
        }

        // The size of each dim: of the container, but for changes, and the sizes that follow from them.
        public Dictionary<string, long> Sizes(JsonElement container, IReadOnlyDictionary<string, long> changes = null)
        {
            var sizes = container.GetProperty("sizes").EnumerateObject().ToDictionary(x => x.Name, x => x.Value.GetInt64());
            foreach (var change in changes ?? new Dictionary<string, long>()) sizes[change.Key] = change.Value;
            foreach (JsonElement derived in Manifest.GetProperty("derived").EnumerateArray())
            {
                var factors = derived.GetProperty("of").EnumerateObject().ToList();
                long total = Number(derived, "add").Value + factors.Sum(x => x.Value.GetInt64() * sizes[x.Name]);
                long divide = Number(derived, "divide").Value;
                long size = total / divide - (total % divide < 0 ? 1 : 0); // rounded down
                size = Math.Max(size, Number(derived, "least") ?? size);
                sizes[Text(derived, "name")] = Math.Min(size, Number(derived, "most") ?? size);
            }
            return sizes;
        }

        public static long[] ShapeOf(JsonElement port, IReadOnlyDictionary<string, long> sizes)
        {
            return port.GetProperty("dims").EnumerateArray()
                .Select(x => x.ValueKind == JsonValueKind.String ? sizes[x.GetString()] : x.GetInt64()).ToArray();
        }

        // Run a clip, or a batch of clips of one length.
        public Dictionary<string, HostTensor> Run(IReadOnlyDictionary<string, HostTensor> feeds)
        {
            JsonElement axis = Manifest.GetProperty("axis");
            string dim = Text(axis, "dim"), batch = Text(Manifest, "batch"), lengths = Text(Manifest, "lengths");
            HostTensor clip = feeds[Text(axis, "input")];
            long? rows = Number(Inputs[Text(axis, "input")], "rows");
            long length = clip.Shape[Number(axis, "axis").Value];
            var fitting = Manifest.GetProperty("containers").EnumerateArray().Where(x => SizeOf(x, dim) >= length).ToList();
            if (fitting.Count == 0 || length < Number(axis, "shortest"))
            {
                throw new ArgumentException($"no container takes a clip of {dim}={length}");
            }
            JsonElement container = fitting[0];
            var held = new Dictionary<string, long>();
            if (batch != null) held[batch] = rows == null ? 1 : clip.Shape[rows.Value];
            var full = Sizes(container);
            var padded = Sizes(container, held);
            held[dim] = length;
            var valid = Sizes(container, held);
            var fed = new Dictionary<string, HostTensor>();
            foreach (var input in Inputs)
            {
                HostTensor tensor = feeds[input.Key];
                if (!tensor.Shape.SequenceEqual(ShapeOf(input.Value, valid))) throw new ArgumentException(input.Key + " has another shape");
                if (Text(input.Value, "kind") == "relative-lengths")
                {
                    float[] shares = tensor.As<float>().Select(x => (float)(x * ((double)length / full[dim]))).ToArray();
                    tensor = HostTensor.Of(tensor.Type, shares, tensor.Shape);
                }
                tensor = tensor.Fit(ShapeOf(input.Value, padded), input.Value.GetProperty("pad").GetDouble());
                fed[input.Key] = tensor.Fit(ShapeOf(input.Value, full), 0, false, (int)(Number(input.Value, "rows") ?? -1)); // copies
            }
            if (lengths != null) fed[lengths] = HostTensor.Filled(TensorElementType.Int64, new[] { batch == null ? 1 : full[batch] }, (i, row) => length);
            return RunContainer(container, Outputs.Keys.ToList(), fed)
                .ToDictionary(x => x.Key, x => x.Value.Fit(ShapeOf(Outputs[x.Key], valid)));
        }

        public Dictionary<string, HostTensor> RunContainer(JsonElement container, List<string> names, Dictionary<string, HostTensor> feeds)
        {
            string file = Text(container, "file");
            if (!sessions.ContainsKey(file)) sessions[file] = new InferenceSession(Path.Combine(folder, file), options);
            var values = new Dictionary<string, OrtValue>();
            try
            {
                foreach (var feed in feeds)
                {
                    OrtValue value = OrtValue.CreateAllocatedTensorValue(OrtAllocator.DefaultInstance, feed.Value.Type, feed.Value.Shape);
                    values[feed.Key] = value;
                    feed.Value.Bytes.AsSpan().CopyTo(value.GetTensorMutableRawData());
                }
                using (var runOptions = new RunOptions())
                using (var found = sessions[file].Run(runOptions, values, names))
                {
                    return names.Zip(found, (name, value) => (name, value)).ToDictionary(x => x.name, x => Copy(x.value));
                }
            }
            finally
            {
                foreach (OrtValue value in values.Values) value.Dispose();
            }
        }

        private static HostTensor Copy(OrtValue value)
        {
            var info = value.GetTensorTypeAndShape();
            return new HostTensor(info.ElementDataType, info.Shape, value.GetTensorMutableRawData().ToArray());
        }

        public void Dispose()
        {
            foreach (InferenceSession session in sessions.Values) session.Dispose();
        }
    }

    // The states of one sequence; each Run continues it with what is new.
    public sealed class HostStream
    {
        private static readonly Dictionary<string, TensorElementType> Types = new Dictionary<string, TensorElementType>
        {
            ["tensor(float)"] = TensorElementType.Float, ["tensor(double)"] = TensorElementType.Double,
            ["tensor(float16)"] = TensorElementType.Float16, ["tensor(int64)"] = TensorElementType.Int64,
            ["tensor(int32)"] = TensorElementType.Int32, ["tensor(int8)"] = TensorElementType.Int8,
            ["tensor(uint8)"] = TensorElementType.UInt8, ["tensor(bool)"] = TensorElementType.Bool,
        };
        private readonly Host host;
        private readonly JsonElement streaming, opening;
        private readonly string dim;
        private readonly Dictionary<string, string> outputsOf;
        private readonly List<JsonElement> caches;
        private readonly List<string> growing, steady, encoder;
        private readonly Dictionary<string, HostTensor> kept = new Dictionary<string, HostTensor>();
        private Dictionary<string, HostTensor> states = new Dictionary<string, HostTensor>();
        private Dictionary<string, HostTensor> encoded = new Dictionary<string, HostTensor>();

        public HostStream(Host host)
        {
            this.host = host;
            streaming = host.Manifest.GetProperty("stream");
            opening = streaming.GetProperty("opening");
            dim = Host.Text(host.Manifest.GetProperty("axis"), "dim");
            outputsOf = streaming.GetProperty("states").EnumerateArray().ToDictionary(x => Host.Text(x, "input"), x => Host.Text(x, "output"));
            caches = streaming.GetProperty("caches").EnumerateArray().ToList();
            growing = caches.Where(x => x.GetProperty("grows").GetBoolean()).Select(x => Host.Text(x, "dim")).ToList();
            steady = caches.Where(x => !x.GetProperty("grows").GetBoolean()).Select(x => Host.Text(x, "dim")).ToList();
            encoder = opening.ValueKind == JsonValueKind.Null
                ? new List<string>() : opening.GetProperty("inputs").EnumerateArray().Select(x => x.GetString()).ToList();
        }

        // How many entries the original's caches would have.
        public long Length { get; private set; }

        // Continue with what is new; return the outputs that are no states.
        // Inputs that stay the same, such as an encoder's, may be left out after the first run.
        public Dictionary<string, HostTensor> Run(IReadOnlyDictionary<string, HostTensor> feeds)
        {
            if (encoder.Count > 0 && encoder.All(feeds.ContainsKey)) Encode(feeds);
            foreach (var feed in feeds) kept[feed.Key] = feed.Value;
            JsonElement axis = host.Manifest.GetProperty("axis");
            long count = feeds[Host.Text(axis, "input")].Shape[Host.Number(axis, "axis").Value], length = Length, start = 0;
            var held = states;
            var names = host.Outputs.Keys.Where(x => !outputsOf.ContainsValue(x)).ToList();
            var parts = names.ToDictionary(x => x, _ => new List<HostTensor>());
            foreach (var (container, valid) in Split(count, ContainersFor(length + count)))
            {
                var padded = host.Sizes(container);
                var now = Sizes(container, length, valid);
                var until = Sizes(container, Length, start + valid);
                var fed = new Dictionary<string, HostTensor>(encoded);
                foreach (var input in host.Inputs)
                {
                    long[] shape = Host.ShapeOf(input.Value, padded);
                    if (outputsOf.ContainsKey(input.Key))
                    {
                        fed[input.Key] = held.ContainsKey(input.Key)
                            ? held[input.Key].Fit(shape, 0, true) : HostTensor.Filled(Types[Host.Text(input.Value, "type")], shape, (i, row) => 0);
                    }
                    else if (!fed.ContainsKey(input.Key) && !encoder.Contains(input.Key))
                    {
                        HostTensor part = kept[input.Key].Fit(Host.ShapeOf(input.Value, until)).Fit(Host.ShapeOf(input.Value, now), 0, true);
                        fed[input.Key] = part.Fit(shape, input.Value.GetProperty("pad").GetDouble(), true);
                    }
                }
                foreach (JsonElement cache in caches)
                {
                    string told = Host.Text(cache, "told");
                    long padding = cache.GetProperty("grows").GetBoolean() ? padded[dim] - valid : 0, entries = now[Host.Text(cache, "dim")] - padding;
                    if (told != "") fed[told] = HostTensor.Filled(TensorElementType.Int64, new[] { 1L }, (i, row) => entries);
                }
                var found = host.RunContainer(container, host.Outputs.Keys.ToList(), fed);
                held = outputsOf.ToDictionary(x => x.Key, x => found[x.Value]);
                foreach (string name in names) parts[name].Add(found[name].Fit(Host.ShapeOf(host.Outputs[name], now), 0, true));
                start += valid;
                length = LengthAfter(length + valid, now);
            }
            Length = length;
            states = held;
            return parts.ToDictionary(x => x.Key, x => Join(x.Key, x.Value));
        }

        // The tokens that follow a prompt, each the most likely one; logits are float. The other
        // inputs, such as what an encoder reads, are `feeds`.
        public List<long> Greedy(IEnumerable<long> prompt, int count, IReadOnlyDictionary<string, HostTensor> feeds = null)
        {
            var tokens = new List<long>();
            var added = prompt.ToArray();
            for (long seen = Length; tokens.Count < count; tokens.Add(added[0]))
            {
                var sizes = Sizes(host.Manifest.GetProperty("containers")[0], Length, added.Length);
                var given = feeds == null ? new Dictionary<string, HostTensor>() : feeds.ToDictionary(x => x.Key, x => x.Value);
                long first = seen;
                long[] now = added;
                foreach (var input in host.Inputs.Where(x => !outputsOf.ContainsKey(x.Key) && !given.ContainsKey(x.Key)))
                {
                    var dims = input.Value.GetProperty("dims").EnumerateArray().ToList();
                    bool causal = dims.Count > 1 && dims[dims.Count - 2].ValueKind == JsonValueKind.String && Follows(dims[dims.Count - 2].GetString());
                    var values = new Dictionary<string, Func<long, long, double>>
                    {
                        ["tokens"] = (i, row) => now[i], ["positions"] = (i, row) => first + i,
                        ["mask"] = (i, row) => input.Value.GetProperty(!causal || i <= Length + row ? "valid" : "pad").GetDouble(),
                    };
                    if (!values.TryGetValue(Host.Text(input.Value, "kind"), out var valueAt)) continue;
                    given[input.Key] = HostTensor.Filled(Types[Host.Text(input.Value, "type")], Host.ShapeOf(input.Value, sizes), valueAt);
                }
                var outputs = Run(given);
                HostTensor logits = outputs[host.Outputs.Keys.First(outputs.ContainsKey)];
                float[] last = logits.As<float>().Skip((int)(HostTensor.Count(logits.Shape) - logits.Shape.Last())).ToArray();
                seen += added.Length;
                feeds = null;
                added = new[] { (long)Array.IndexOf(last, last.Max()) };
            }
            return tokens;
        }

        // Run the graph of the encoder's caches, once for each encoding.
        private void Encode(IReadOnlyDictionary<string, HostTensor> feeds)
        {
            JsonElement container = opening.GetProperty("container");
            var own = container.GetProperty("sizes").EnumerateObject().ToDictionary(x => x.Name, x => x.Value.GetInt64());
            var sizes = host.Sizes(host.Manifest.GetProperty("containers")[0], own);
            var fed = encoder.ToDictionary(x => x, x => feeds[x].Fit(
                Host.ShapeOf(host.Inputs[x], sizes), host.Inputs[x].GetProperty("pad").GetDouble(), true));
            var gives = opening.GetProperty("gives").EnumerateObject().ToDictionary(x => x.Name, x => x.Value.GetString());
            var found = host.RunContainer(container, gives.Values.ToList(), fed);
            encoded = gives.ToDictionary(x => x.Key, x => found[x.Value]);
        }

        // The containers with the smallest caches that hold so many entries; the smallest first.
        private List<JsonElement> ContainersFor(long total)
        {
            var containers = host.Manifest.GetProperty("containers").EnumerateArray().ToList();
            var holding = containers.Where(x => growing.All(d => Host.SizeOf(x, d) >= total)).ToList();
            if (holding.Count == 0 && streaming.GetProperty("rolls").GetBoolean()) holding.Add(containers.Last());
            if (holding.Count == 0) throw new ArgumentException($"the caches do not hold {total} entries");
            return containers.Where(x => growing.All(d => Host.SizeOf(x, d) == Host.SizeOf(holding[0], d)))
                .OrderBy(x => Host.SizeOf(x, dim)).ToList();
        }

        // Split what is new: the containers in turn, each with how many entries it takes.
        private List<(JsonElement, long)> Split(long count, List<JsonElement> containers)
        {
            var parts = new List<(JsonElement, long)>();
            long largest = Host.SizeOf(containers.Last(), dim), rest = count;
            if (!streaming.GetProperty("joins").GetBoolean() && containers.All(x => Host.SizeOf(x, dim) != count))
            {
                throw new ArgumentException($"no container takes {count} entries at once");
            }
            if (streaming.GetProperty("partial").GetBoolean() && states.Count == 0 && count % largest > 0)
            {
                parts.Add((containers.First(x => Host.SizeOf(x, dim) >= count % largest), count % largest));
                rest -= count % largest;
            }
            while (rest > 0)
            {
                int best = containers.FindLastIndex(x => Host.SizeOf(x, dim) <= rest);
                if (best < 0) throw new ArgumentException($"{count} is no sum of what containers take");
                parts.Add((containers[best], Host.SizeOf(containers[best], dim)));
                rest -= Host.SizeOf(containers[best], dim);
            }
            return parts;
        }

        // The original's sizes behind so many entries, with so many new ones.
        private Dictionary<string, long> Sizes(JsonElement container, long length, long count)
        {
            var changes = new Dictionary<string, long> { [dim] = count };
            foreach (string cache in growing) changes[cache] = length;
            foreach (var feed in kept)
            {
                var dims = host.Inputs[feed.Key].GetProperty("dims").EnumerateArray().ToList();
                for (int axis = 0; axis < dims.Count; axis++)
                {
                    string name = dims[axis].ValueKind == JsonValueKind.String ? dims[axis].GetString() : "";
                    if (steady.Contains(name)) changes[name] = feed.Value.Shape[axis];
                }
            }
            return host.Sizes(container, changes);
        }

        private long LengthAfter(long counted, IReadOnlyDictionary<string, long> sizes)
        {
            foreach (JsonElement link in streaming.GetProperty("states").EnumerateArray())
            {
                long? axis = Host.Number(link, "axis");
                if (axis != null) return Host.ShapeOf(host.Outputs[Host.Text(link, "output")], sizes)[axis.Value];
            }
            return counted;
        }

        // Join an output of several parts along the axis that follows how much is new.
        private HostTensor Join(string name, List<HostTensor> parts)
        {
            var dims = host.Outputs[name].GetProperty("dims").EnumerateArray().ToList();
            int axis = dims.FindIndex(x => x.ValueKind == JsonValueKind.String && Follows(x.GetString()));
            return axis < 0 ? parts.Last() : HostTensor.Join(parts, axis);
        }

        private bool Follows(string name)
        {
            return name == dim || host.Manifest.GetProperty("derived").EnumerateArray()
                .Where(x => Host.Text(x, "name") == name)
                .Any(x => x.GetProperty("of").EnumerateObject().Any(y => Follows(y.Name)));
        }
    }
}
