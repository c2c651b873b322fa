// drive FOLDER CALLS RESULTS: run calls that a test wrote, and write what came out.
#include <fstream>
#include <iostream>

#include "host.hpp"

using graphfix::Json;

template <typename T>
std::vector<char> packed(const Json& numbers) {
  std::vector<char> bytes;
  for (const Json& number : numbers) {
    const auto element = graphfix::bytes_of(number.get<T>());
    bytes.insert(bytes.end(), element.begin(), element.end());
  }
  return bytes;
}

template <typename T>
Json unpacked(const std::vector<char>& bytes) {
  Json numbers = Json::array();
  for (size_t i = 0; i < bytes.size(); i += sizeof(T)) {
    T number;
    std::memcpy(&number, &bytes[i], sizeof(T));
    numbers.push_back(number);
  }
  return numbers;
}

struct Kind {
  ONNXTensorElementDataType type;
  std::vector<char> (*pack)(const Json&);
  Json (*unpack)(const std::vector<char>&);
};

const std::map<std::string, Kind> kinds{
    {"float32", {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, packed<float>, unpacked<float>}},
    {"float64", {ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE, packed<double>, unpacked<double>}},
    {"int64", {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64, packed<int64_t>, unpacked<int64_t>}},
    {"int32", {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32, packed<int32_t>, unpacked<int32_t>}},
    {"bool", {ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL, packed<uint8_t>, unpacked<uint8_t>}}};

int main(int count, char** words) {
  if (count != 4) return 2;
  graphfix::Host host(words[1], Ort::SessionOptions{});
  const bool streams = !host.manifest["stream"].is_null();
  auto stream = streams ? std::make_unique<graphfix::Stream>(host) : nullptr;
  std::ifstream calls(words[2]);
  Json results = Json::array();
  try {
    for (const Json& call : Json::parse(calls)) {
      graphfix::Tensors feeds;
      for (const auto& [name, value] : call.items()) {
        const Kind& kind = kinds.at(value["type"]);
        feeds[name] = {kind.type, value["dims"], kind.pack(value["data"])};
      }
      Json result = Json::object();
      for (const auto& [name, tensor] : streams ? stream->run(feeds) : host.run(feeds)) {
        for (const auto& [type, kind] : kinds) {
          if (kind.type == tensor.type) {
            result[name] = {{"type", type}, {"dims", tensor.shape}, {"data", kind.unpack(tensor.bytes)}};
          }
        }
      }
      results.push_back(result);
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  std::ofstream(words[3]) << results;
}
