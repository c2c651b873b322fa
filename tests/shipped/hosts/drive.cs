// drive FOLDER CALLS RESULTS: run calls that a test wrote, and write what came out.
using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Text.Json;
using Graphfix;
using Microsoft.ML.OnnxRuntime;
using Microsoft.ML.OnnxRuntime.Tensors;

static class Drive
{
    static HostTensor Read(JsonElement x)
    {
        long[] dims = x.GetProperty("dims").EnumerateArray().Select(n => n.GetInt64()).ToArray();
        var data = x.GetProperty("data").EnumerateArray();
        switch (x.GetProperty("type").GetString())
        {
            case "float32": return HostTensor.Of(TensorElementType.Float, data.Select(n => n.GetSingle()).ToArray(), dims);
            case "int64": return HostTensor.Of(TensorElementType.Int64, data.Select(n => n.GetInt64()).ToArray(), dims);
            case "bool": return HostTensor.Of(TensorElementType.Bool, data.Select(n => n.GetBoolean()).ToArray(), dims);
            default: throw new ArgumentException(x.ToString());
        }
    }

    static object Plain(HostTensor x)
    {
        if (x.Type == TensorElementType.Float) return new { type = "float32", dims = x.Shape, data = x.As<float>() };
        return new { type = "int64", dims = x.Shape, data = x.As<long>() };
    }

    static void Main(string[] words)
    {
        var host = new Host(words[0], new SessionOptions());
        bool streams = host.Manifest.GetProperty("stream").ValueKind != JsonValueKind.Null;
        var stream = streams ? new HostStream(host) : null;
        var results = new List<object>();
        foreach (JsonElement call in JsonDocument.Parse(File.ReadAllText(words[1])).RootElement.EnumerateArray())
        {
            var feeds = call.EnumerateObject().ToDictionary(x => x.Name, x => Read(x.Value));
            var outputs = streams ? stream.Run(feeds) : host.Run(feeds);
            results.Add(outputs.ToDictionary(x => x.Key, x => Plain(x.Value)));
        }
        File.WriteAllText(words[2], JsonSerializer.Serialize(results));
    }
}
