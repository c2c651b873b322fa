// Run a folder that `graphfix ship` made, with ONNX Runtime and nlohmann/json alone. C++17.
//
// graphfix::Host host("shipped", Ort::SessionOptions{});
// auto outputs = host.run({{"audio", clip}});                a model that takes clips
// graphfix::Stream stream(host);
// outputs = stream.run({{"input_ids", tokens}});             a model that continues states
//
// Inputs and outputs are tensors by name, in the original model's shapes.
#pragma once

#include <onnxruntime_cxx_api.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace graphfix {

using Json = nlohmann::json;
using Shape = std::vector<int64_t>;
using Sizes = std::map<std::string, int64_t>;

struct Tensor {
  ONNXTensorElementDataType type;
  Shape shape;
  std::vector<char> bytes;  // row-major
};
using Tensors = std::map<std::string, Tensor>;

inline int64_t product(Shape::const_iterator begin, Shape::const_iterator end) {
  return std::accumulate(begin, end, int64_t{1}, std::multiplies<>());
}
inline int64_t count_of(const Shape& shape) { return product(shape.begin(), shape.end()); }

template <typename T>
std::vector<char> bytes_of(T value) {
  std::vector<char> bytes(sizeof(T));
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

// One element of a type, such as the value of padding.
inline std::vector<char> element(ONNXTensorElementDataType type, double value) {
  switch (type) {
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT: return bytes_of(static_cast<float>(value));
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE: return bytes_of(value);
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16: return bytes_of(Ort::Float16_t(static_cast<float>(value)).val);
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64: return bytes_of(static_cast<int64_t>(value));
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32: return bytes_of(static_cast<int32_t>(value));
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8: return bytes_of(static_cast<int8_t>(value));
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8: return bytes_of(static_cast<uint8_t>(value));
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL: return bytes_of(value != 0);
    default: throw std::invalid_argument("element type " + std::to_string(type));
  }
}

inline Tensor filled(ONNXTensorElementDataType type, const Shape& shape, double value) {
  const std::vector<char> one = element(type, value);
  Tensor tensor{type, shape, {}};
  tensor.bytes.reserve(one.size() * count_of(shape));
  for (int64_t i = 0; i < count_of(shape); i++) tensor.bytes.insert(tensor.bytes.end(), one.begin(), one.end());
  return tensor;
}

// A tensor in a shape: cut or padded at its end, or at its front; `rows` repeats along an axis.
inline Tensor fit(const Tensor& tensor, const Shape& shape, double pad = 0, bool front = false, int rows = -1) {
  if (tensor.shape == shape) return tensor;
  Tensor fitted = filled(tensor.type, shape, pad);
  const size_t width = element(tensor.type, 0).size();
  for (int64_t i = 0; i < count_of(shape); i++) {
    bool inside = true;
    int64_t rest = i, stride = 1, from = 0;
    for (int axis = static_cast<int>(shape.size()) - 1; axis >= 0; axis--) {
      const int64_t size = tensor.shape.at(axis);
      int64_t at = rest % shape[axis];
      at = axis == rows ? at % size : front ? at + size - shape[axis] : at;
      inside = inside && at >= 0 && at < size;
      from += at * stride;
      stride *= size;
      rest /= shape[axis];
    }
    if (inside) std::memcpy(&fitted.bytes[i * width], &tensor.bytes[from * width], width);
  }
  return fitted;
}

// Join tensors along an axis.
inline Tensor joined(const std::vector<Tensor>& parts, size_t axis) {
  Tensor whole{parts[0].type, parts[0].shape, {}};
  whole.shape[axis] = 0;
  for (const Tensor& part : parts) whole.shape[axis] += part.shape[axis];
  const int64_t outer = product(whole.shape.begin(), whole.shape.begin() + axis);
  for (int64_t i = 0; i < outer; i++) {
    for (const Tensor& part : parts) {
      const size_t size = part.bytes.size() / outer;
      whole.bytes.insert(whole.bytes.end(), part.bytes.begin() + i * size, part.bytes.begin() + (i + 1) * size);
    }
  }
  return whole;
}

inline Tensor int64s(const std::vector<int64_t>& values) {
  Tensor tensor = filled(ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64, {static_cast<int64_t>(values.size())}, 0);
  std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

class Host {
 public:
  Host(const std::filesystem::path& folder, Ort::SessionOptions options)
      : folder_(folder), options_(std::move(options)) {
    std::ifstream file(folder / "graphfix.json");
    manifest = Json::parse(file);
    if (manifest["schema"] != 2) throw std::runtime_error("this host reads schema 2");
    for (const Json& port : manifest["inputs"]) inputs[port["name"]] = port;
    for (const Json& port : manifest["outputs"]) outputs[port["name"]] = port;
  }

  // Run a clip, or a batch of clips of one length.
  Tensors run(const Tensors& feeds) {
    const Json &axis = manifest["axis"], &batch = manifest["batch"];
    const std::string dim = axis["dim"];
    const Tensor& clip = feeds.at(axis["input"]);
    const Json& rows = inputs.at(axis["input"])["rows"];
    const int64_t length = clip.shape.at(axis["axis"]);
    const Json* container = nullptr;
    for (const Json& one : manifest["containers"]) {
      if (container == nullptr && one["sizes"][dim] >= length) container = &one;
    }
    if (container == nullptr || length < axis["shortest"]) {
      throw std::invalid_argument("no container takes a clip of " + dim + "=" + std::to_string(length));
    }
    Sizes held;
    if (batch.is_string()) held[batch] = rows.is_null() ? 1 : clip.shape.at(rows);
    const Sizes full = sizes(*container), padded = sizes(*container, held);
    held[dim] = length;
    const Sizes valid = sizes(*container, held);
    Tensors fed;
    for (const auto& [name, port] : inputs) {
      Tensor tensor = feeds.at(name);
      if (tensor.shape != shape_of(port, valid)) throw std::invalid_argument(name + " has another shape");
      if (port["kind"] == "relative-lengths") {
        for (size_t i = 0; i < tensor.bytes.size() / sizeof(float); i++) {
          reinterpret_cast<float*>(tensor.bytes.data())[i] *= static_cast<double>(length) / full.at(dim);
        }
      }
      tensor = fit(tensor, shape_of(port, padded), port["pad"]);
      fed[name] = fit(tensor, shape_of(port, full), 0, false, port["rows"].is_null() ? -1 : port["rows"].get<int>());
    }
    if (manifest["lengths"].is_string()) {
      const int64_t count = batch.is_string() ? full.at(batch) : 1;
      fed[manifest["lengths"]] = int64s(std::vector<int64_t>(count, length));
    }
    Tensors found = run_container(*container, names_of(outputs), fed);
    for (auto& [name, tensor] : found) tensor = fit(tensor, shape_of(outputs.at(name), valid));
    return found;
  }

  // The size of each dim: of the container, but for changes, and the sizes that follow from them.
  Sizes sizes(const Json& container, const Sizes& changes = {}) const {
    Sizes sizes = changes;
    for (const auto& [dim, size] : container["sizes"].items()) sizes.emplace(dim, size);
    for (const Json& derived : manifest["derived"]) {
      int64_t total = derived["add"], divide = derived["divide"];
      for (const auto& [dim, factor] : derived["of"].items()) {
        total += factor.get<int64_t>() * sizes.at(dim);
      }
      int64_t size = total / divide - (total % divide < 0);  // rounded down
      if (!derived["least"].is_null()) size = std::max(size, derived["least"].get<int64_t>());
      if (!derived["most"].is_null()) size = std::min(size, derived["most"].get<int64_t>());
      sizes[derived["name"]] = size;
    }
    return sizes;
  }

  static Shape shape_of(const Json& port, const Sizes& sizes) {
    Shape shape;
    for (const Json& dim : port["dims"]) {
      shape.push_back(dim.is_string() ? sizes.at(dim) : dim.get<int64_t>());
    }
    return shape;
  }

  template <typename Map>
  static std::vector<std::string> names_of(const Map& map) {
    std::vector<std::string> names;
    for (const auto& entry : map) names.push_back(entry.first);
    return names;
  }

  Tensors run_container(const Json& container, const std::vector<std::string>& names, const Tensors& feeds) {
    const std::string file = container["file"];
    auto session = sessions_.find(file);
    if (session == sessions_.end()) {
      session = sessions_.emplace(file, Ort::Session(environment_, (folder_ / file).c_str(), options_)).first;
    }
    const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
    std::vector<const char*> input_names, output_names;
    std::vector<Ort::Value> values;
    for (const auto& [name, tensor] : feeds) {
      input_names.push_back(name.c_str());
      values.push_back(Ort::Value::CreateTensor(memory, const_cast<char*>(tensor.bytes.data()), tensor.bytes.size(),
                                                tensor.shape.data(), tensor.shape.size(), tensor.type));
    }
    for (const std::string& name : names) output_names.push_back(name.c_str());
    const auto found = session->second.Run(Ort::RunOptions{}, input_names.data(), values.data(), values.size(),
                                           output_names.data(), output_names.size());
    Tensors tensors;
    for (size_t i = 0; i < names.size(); i++) {
      const auto info = found[i].GetTensorTypeAndShapeInfo();
      const char* data = static_cast<const char*>(found[i].GetTensorRawData());
      const size_t width = element(info.GetElementType(), 0).size();
      tensors[names[i]] = {info.GetElementType(), info.GetShape(), {data, data + width * info.GetElementCount()}};
    }
    return tensors;
  }

  Json manifest;
  std::map<std::string, Json> inputs, outputs;

 private:
  std::filesystem::path folder_;
  Ort::SessionOptions options_;
  Ort::Env environment_{ORT_LOGGING_LEVEL_ERROR, "graphfix"};
  std::map<std::string, Ort::Session> sessions_;
};

// The states of one sequence; each run continues it with what is new.
class Stream {
 public:
  explicit Stream(Host& host) : host_(host), streaming_(host.manifest["stream"]), dim_(host.manifest["axis"]["dim"]) {
    for (const Json& link : streaming_["states"]) outputs_of_[link["input"]] = link["output"];
    for (const Json& cache : streaming_["caches"]) (cache["grows"] ? growing_ : steady_).push_back(cache["dim"]);
  }

  // Continue with what is new; return the outputs that are no states.
  // Inputs that stay the same, such as an encoder's, may be left out after the first run.
  Tensors run(const Tensors& feeds) {
    const Json& opening = streaming_["opening"];
    std::vector<std::string> encoder;
    if (!opening.is_null()) encoder = opening["inputs"].get<std::vector<std::string>>();
    const auto is_fed = [&](const std::string& name) { return feeds.count(name) != 0; };
    if (!encoder.empty() && std::all_of(encoder.begin(), encoder.end(), is_fed)) encode(feeds, encoder);
    for (const auto& [name, tensor] : feeds) kept_[name] = tensor;
    const Json& axis = host_.manifest["axis"];
    const int64_t count = feeds.at(axis["input"]).shape.at(axis["axis"]);
    std::map<std::string, std::vector<Tensor>> parts;
    Tensors states = states_;
    int64_t length = length_, start = 0;
    for (const auto& [container, valid] : split(count, containers_for(length + count))) {
      const Sizes padded = host_.sizes(*container), now = sizes(*container, length, valid);
      const Sizes until = sizes(*container, length_, start + valid);
      Tensors fed = encoded_;
      for (const auto& [name, port] : host_.inputs) {
        const Shape shape = Host::shape_of(port, padded);
        if (outputs_of_.count(name)) {
          fed[name] = states.count(name) ? fit(states.at(name), shape, 0, true) : filled(type_of(port), shape, 0);
        } else if (!fed.count(name) && std::find(encoder.begin(), encoder.end(), name) == encoder.end()) {
          const Tensor part = fit(fit(kept_.at(name), Host::shape_of(port, until)), Host::shape_of(port, now), 0, true);
          fed[name] = fit(part, shape, port["pad"], true);
        }
      }
      for (const Json& cache : streaming_["caches"]) {
        const int64_t padding = cache["grows"] ? padded.at(dim_) - valid : 0;
        if (cache["told"] != "") fed[cache["told"]] = int64s({now.at(cache["dim"]) - padding});
      }
      Tensors found = host_.run_container(*container, Host::names_of(host_.outputs), fed);
      for (const auto& [name, output] : outputs_of_) {
        states[name] = std::move(found.at(output));
        found.erase(output);
      }
      for (const auto& [name, tensor] : found) {
        parts[name].push_back(fit(tensor, Host::shape_of(host_.outputs.at(name), now), 0, true));
      }
      start += valid;
      length = length_after(length + valid, now);
    }
    length_ = length;
    states_ = std::move(states);
    Tensors outputs;
    for (const auto& [name, tensors] : parts) outputs[name] = join(name, tensors);
    return outputs;
  }

  // The tokens that follow a prompt, each the most likely one; logits are float. The other inputs,
  // such as what an encoder reads, are `feeds`.
  std::vector<int64_t> greedy(std::vector<int64_t> added, int count, Tensors feeds = {}) {
    std::vector<int64_t> tokens;
    for (int64_t seen = length_; count > 0; count--) {
      const int64_t size = static_cast<int64_t>(added.size());
      const Sizes sizes = this->sizes(host_.manifest["containers"][0], length_, size);
      for (const auto& [name, port] : host_.inputs) {
        const std::string kind = port["kind"];
        if (feeds.count(name) || outputs_of_.count(name)) continue;
        if (kind != "tokens" && kind != "positions" && kind != "mask") continue;
        Tensor tensor{type_of(port), Host::shape_of(port, sizes), {}};
        for (int64_t i = 0; i < count_of(tensor.shape); i++) {
          const int64_t at = i % tensor.shape.back();
          double value = kind == "positions" ? seen + at : kind == "tokens" ? added.at(at) : 0;
          if (kind == "mask") value = sees(port, tensor.shape, i) ? port["valid"] : port["pad"];
          const auto one = element(tensor.type, value);
          tensor.bytes.insert(tensor.bytes.end(), one.begin(), one.end());
        }
        feeds[name] = tensor;
      }
      const Tensors outputs = run(feeds);
      for (const Json& port : host_.manifest["outputs"]) {
        if (!outputs.count(port["name"])) continue;
        const Tensor& logits = outputs.at(port["name"]);
        const float* end = reinterpret_cast<const float*>(logits.bytes.data() + logits.bytes.size());
        const float* begin = end - logits.shape.back();
        added = {std::max_element(begin, end) - begin};
        break;
      }
      seen += size;
      feeds.clear();
      tokens.push_back(added.front());
    }
    return tokens;
  }

  // How many entries the original's caches would have.
  int64_t length() const { return length_; }

 private:
  using Containers = std::vector<const Json*>;

  // Run the graph of the encoder's caches, once for each encoding.
  void encode(const Tensors& feeds, const std::vector<std::string>& encoder) {
    const Json& opening = streaming_["opening"];
    const Sizes sizes = host_.sizes(host_.manifest["containers"][0], opening["container"]["sizes"]);
    Tensors fed;
    for (const std::string& name : encoder) {
      const Json& port = host_.inputs.at(name);
      fed[name] = fit(feeds.at(name), Host::shape_of(port, sizes), port["pad"], true);
    }
    std::vector<std::string> outputs;
    for (const auto& [name, output] : opening["gives"].items()) outputs.push_back(output);
    const Tensors found = host_.run_container(opening["container"], outputs, fed);
    for (const auto& [name, output] : opening["gives"].items()) encoded_[name] = found.at(output);
  }

  // Whether a token sees an entry: a mask with a row for each new token hides those behind it.
  bool sees(const Json& mask, const Shape& shape, int64_t index) const {
    const size_t rank = shape.size();
    if (rank < 2 || !mask["dims"][rank - 2].is_string() || !follows(mask["dims"][rank - 2])) return true;
    return index % shape[rank - 1] <= length_ + index / shape[rank - 1] % shape[rank - 2];
  }

  static ONNXTensorElementDataType type_of(const Json& port) {
    static const std::map<std::string, ONNXTensorElementDataType> types{
        {"tensor(float)", ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT},   {"tensor(double)", ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE},
        {"tensor(float16)", ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16}, {"tensor(int64)", ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64},
        {"tensor(int32)", ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32},   {"tensor(int8)", ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8},
        {"tensor(uint8)", ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8},   {"tensor(bool)", ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL}};
    return types.at(port["type"]);
  }

  int64_t size(const Json& container) const { return container["sizes"][dim_]; }

  // The containers with the smallest caches that hold so many entries; the smallest first.
  Containers containers_for(int64_t total) const {
    const Json& every = host_.manifest["containers"];
    const Json* smallest = nullptr;
    for (const Json& one : every) {
      const auto holds = [&](const std::string& dim) { return one["sizes"][dim] >= total; };
      if (smallest == nullptr && std::all_of(growing_.begin(), growing_.end(), holds)) smallest = &one;
    }
    if (smallest == nullptr && streaming_["rolls"]) smallest = &every.back();
    if (smallest == nullptr) throw std::invalid_argument("the caches do not hold " + std::to_string(total) + " entries");
    Containers containers;
    for (const Json& one : every) {
      const auto same = [&](const std::string& dim) { return one["sizes"][dim] == (*smallest)["sizes"][dim]; };
      if (std::all_of(growing_.begin(), growing_.end(), same)) containers.push_back(&one);
    }
    std::sort(containers.begin(), containers.end(), [&](auto a, auto b) { return size(*a) < size(*b); });
    return containers;
  }

  // Split what is new: the containers in turn, each with how many entries it takes.
  std::vector<std::pair<const Json*, int64_t>> split(int64_t count, const Containers& containers) const {
    std::vector<std::pair<const Json*, int64_t>> parts;
    const auto smallest_from = [&](int64_t least) {
      return *std::find_if(containers.begin(), containers.end(), [&](auto x) { return size(*x) >= least; });
    };
    const int64_t largest = size(*containers.back());
    int64_t rest = count;
    if (!streaming_["joins"] && (count > largest || size(*smallest_from(count)) != count)) {
      throw std::invalid_argument("no container takes " + std::to_string(count) + " entries at once");
    }
    if (streaming_["partial"] && states_.empty() && count % largest) {
      parts.emplace_back(smallest_from(count % largest), count % largest);
      rest -= count % largest;
    }
    while (rest > 0) {
      const auto fits = std::find_if(containers.rbegin(), containers.rend(), [&](auto x) { return size(*x) <= rest; });
      if (fits == containers.rend()) throw std::invalid_argument(std::to_string(count) + " is no sum of containers");
      parts.emplace_back(*fits, size(**fits));
      rest -= size(**fits);
    }
    return parts;
  }

  // The original's sizes behind so many entries, with so many new ones.
  Sizes sizes(const Json& container, int64_t length, int64_t count) const {
    Sizes changes{{dim_, count}};
    for (const std::string& dim : growing_) changes[dim] = length;
    for (const auto& [name, tensor] : kept_) {
      const Json& dims = host_.inputs.at(name)["dims"];
      for (size_t axis = 0; axis < dims.size(); axis++) {
        if (std::find(steady_.begin(), steady_.end(), dims[axis]) != steady_.end()) changes[dims[axis]] = tensor.shape[axis];
      }
    }
    return host_.sizes(container, changes);
  }

  int64_t length_after(int64_t counted, const Sizes& sizes) const {
    for (const Json& link : streaming_["states"]) {
      if (!link["axis"].is_null()) return Host::shape_of(host_.outputs.at(link["output"]), sizes).at(link["axis"]);
    }
    return counted;
  }

  // Join an output of several parts along the axis that follows how much is new.
  Tensor join(const std::string& name, const std::vector<Tensor>& parts) const {
    const Json& dims = host_.outputs.at(name)["dims"];
    for (size_t axis = 0; axis < dims.size(); axis++) {
      if (dims[axis].is_string() && follows(dims[axis])) return joined(parts, axis);
    }
    return parts.back();
  }

  bool follows(const std::string& dim) const {
    if (dim == dim_) return true;
    for (const Json& derived : host_.manifest["derived"]) {
      if (derived["name"] != dim) continue;
      for (const auto& entry : derived["of"].items()) {
        if (follows(entry.key())) return true;
      }
    }
    return false;
  }

  Host& host_;
  Json streaming_;
  std::string dim_;
  std::vector<std::string> growing_, steady_;
  std::map<std::string, std::string> outputs_of_;
  int64_t length_ = 0;
  Tensors states_, kept_, encoded_;
};

}  // namespace graphfix
