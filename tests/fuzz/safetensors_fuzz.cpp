// Fuzz entry for the safetensors reader (and with it the JSON reader): a file is either refused with
// bad_input, or every span lies inside it and the spans fill the data. Each input is tried twice, as a file
// and as the header of a file whose length is right, so that the fuzzer need not guess the length.
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "base/safetensors.hpp"

namespace {

using Bytes = std::span<const std::byte>;

void require(bool condition) {
  if (!condition) std::abort();
}

void check_index(const prun::SafetensorsIndex& index, Bytes file) {
  std::uint64_t last = file.size();
  unsigned sum = 0;
  for (const prun::SafetensorsEntry& entry : index.entries()) {
    require(entry.begin <= entry.end && entry.end <= file.size());
    require(&entry == &index.entries().front() || entry.begin == last);
    require(index.find(entry.name) == &entry);
    last = entry.end;
    if (entry.begin < entry.end) sum += std::to_integer<unsigned>(file[entry.begin] ^ file[entry.end - 1]);
  }
  require(last == file.size());
  require(sum <= 255 * index.entries().size());
}

void try_file(Bytes file) {
  try {
    check_index(prun::read_safetensors_index(file, "fuzz"), file);
  } catch (const prun::Error& error) {
    require(error.code() == prun::ErrorCode::bad_input);
  }
}

std::vector<std::byte> framed(Bytes header) {
  std::vector<std::byte> file;
  for (int shift = 0; shift < 64; shift += 8)
    file.push_back(static_cast<std::byte>(header.size() >> shift & 0xff));
  file.insert(file.end(), header.begin(), header.end());
  file.resize(file.size() + 24);
  return file;
}

void try_json(Bytes text) {
  const auto rewritten = [](std::string_view json) {
    return prun::JsonWriter().value(prun::parse_json(json, "fuzz")).take();
  };
  try {
    const std::string once = rewritten({reinterpret_cast<const char*>(text.data()), text.size()});
    require(rewritten(once) == once);
  } catch (const prun::Error& error) {
    require(error.code() == prun::ErrorCode::bad_input);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Bytes input = std::as_bytes(std::span(data, size));
  try_file(input);
  try_file(framed(input));
  try_json(input);
  return 0;
}
