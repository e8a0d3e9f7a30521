// Token files made in memory, right or wrong on purpose.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace prun::test {

template <class T>
void put(std::string& out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  std::string out;
  for (const T value : values) put(out, value);
  return out;
}

inline std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// Defaults are a right index of two sequences of 3 and 4 u16 tokens; a test bends one field.
struct IdxFile {
  std::string magic{"MMIDIDX\0\0", 9};
  std::uint64_t version = 1;
  std::uint8_t type = 8;
  std::uint64_t sequences = 2;
  std::uint64_t bounds = 3;
  std::vector<std::int32_t> lengths{3, 4};
  std::vector<std::int64_t> offsets{0, 6};
  std::vector<std::int64_t> documents{0, 1, 2};
  std::string tail{};

  std::string str() const {
    std::string out = magic;
    put(out, version);
    put(out, type);
    put(out, sequences);
    put(out, bounds);
    return out + bytes_of(lengths) + bytes_of(offsets) + bytes_of(documents) + tail;
  }
};

// As the writer lays them: one after the other, each a document.
inline IdxFile index_of(std::uint8_t type, std::int64_t token_bytes,
                        const std::vector<std::int32_t>& lengths) {
  IdxFile idx;
  idx.type = type;
  idx.sequences = lengths.size();
  idx.bounds = lengths.size() + 1;
  idx.lengths = lengths;
  idx.offsets.clear();
  idx.documents = {0};
  std::int64_t offset = 0;
  for (const std::int32_t length : lengths) {
    idx.offsets.push_back(offset);
    idx.documents.push_back(static_cast<std::int64_t>(idx.offsets.size()));
    offset += length * token_bytes;
  }
  return idx;
}

struct LlmcFile {
  std::int32_t magic = 20240520;
  std::int32_t version = 1;
  std::int32_t count = 0;
  std::string tokens{};

  std::string str() const {
    std::string out = bytes_of<std::int32_t>({magic, version, count});
    out.resize(1024, '\0');
    return out + tokens;
  }
};

inline LlmcFile shard_of(const std::vector<std::uint16_t>& tokens) {
  return {20240520, 1, static_cast<std::int32_t>(tokens.size()), bytes_of(tokens)};
}

// The message of the Error that the call throws; says so when it throws none.
template <class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "(no error)";
}

}  // namespace prun::test
