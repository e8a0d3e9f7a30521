// Reads the header of a safetensors file and checks every rule of the format.
#include <algorithm>
#include <array>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/json.hpp"
#include "base/safetensors.hpp"
#include "base/safetensors_format.hpp"
#include "base/slice.hpp"

namespace prun {

namespace {

struct TypeRow {
  std::string_view name;
  int bits;
};

// The table is in the order of SafetensorsType.
constexpr std::array<TypeRow, 22> type_table = {{
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
    {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
    {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64},
}};

// Reads the index of one file. Offsets stay relative to the data until checked.
class IndexReader {
 public:
  IndexReader(std::span<const std::byte> file, std::string_view source) : file_(file), source_(source) {}

  SafetensorsIndex read() {
    const JsonValue header = parse_header();
    std::vector<SafetensorsEntry> entries;
    SafetensorsMetadata metadata;
    for (const JsonMember& member : header.as_object().members()) {
      if (member.name == safetensors::metadata_name)
        metadata = read_metadata(member.value);
      else
        entries.push_back(read_entry(member.name, member.value));
    }
    place(entries);
    return SafetensorsIndex(std::move(entries), std::move(metadata));
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw_error(ErrorCode::bad_input, source_, ": ", parts..., "; the file is damaged or not safetensors");
  }
  template <class... Parts>
  [[noreturn]] void fail_tensor(std::string_view name, const Parts&... parts) const {
    fail("tensor '", safetensors::printable(name), "': ", parts...);
  }

  JsonValue parse_header();
  SafetensorsMetadata read_metadata(const JsonValue& value) const;
  SafetensorsEntry read_entry(const std::string& name, const JsonValue& value) const;
  const JsonValue& field(const std::string& tensor, const JsonValue& value, std::string_view name) const;
  SafetensorsType read_type(const std::string& tensor, const JsonValue& value) const;
  std::vector<std::int64_t> read_shape(const std::string& tensor, const JsonValue& value) const;
  void read_offsets(SafetensorsEntry& entry, const JsonValue& value) const;
  void check_size(const SafetensorsEntry& entry) const;
  void place(std::vector<SafetensorsEntry>& entries) const;

  std::span<const std::byte> file_;
  std::string_view source_;
  std::uint64_t data_begin_ = 0;
};

JsonValue IndexReader::parse_header() {
  if (file_.size() < safetensors::length_bytes) {
    fail("the file has ", file_.size(), " bytes, too few for the length of the header");
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < safetensors::length_bytes; ++i)
    length |= std::to_integer<std::uint64_t>(file_[i]) << (8 * i);
  if (length > safetensors::max_header_bytes)
    fail("header length ", length, " is above the limit of ", safetensors::max_header_bytes);
  if (length > file_.size() - safetensors::length_bytes) {
    fail("header length ", length, " goes beyond the end of the file of ", file_.size(), " bytes");
  }
  data_begin_ = safetensors::length_bytes + length;
  const std::string_view text(reinterpret_cast<const char*>(file_.data()) + safetensors::length_bytes,
                              length);
  if (!text.starts_with('{')) fail("the header does not start with '{'");
  const std::size_t last = text.find_last_not_of(' ');
  if (text[last] != '}') fail("the header does not end in '}' and spaces");
  return parse_json(text.substr(0, last + 1), detail::concat(source_, ": header"));
}

SafetensorsMetadata IndexReader::read_metadata(const JsonValue& value) const {
  if (!value.is_object()) fail("__metadata__ is not an object");
  SafetensorsMetadata metadata;
  for (const JsonMember& member : value.as_object().members()) {
    if (!member.value.is_string())
      fail("__metadata__ '", safetensors::printable(member.name), "' is not a string");
    metadata.emplace(member.name, member.value.as_string());
  }
  return metadata;
}

SafetensorsEntry IndexReader::read_entry(const std::string& name, const JsonValue& value) const {
  if (!value.is_object()) fail_tensor(name, "its entry is not an object");
  SafetensorsEntry entry;
  entry.name = name;
  entry.type = read_type(name, field(name, value, "dtype"));
  entry.shape = read_shape(name, field(name, value, "shape"));
  read_offsets(entry, field(name, value, "data_offsets"));
  check_size(entry);
  return entry;
}

const JsonValue& IndexReader::field(const std::string& tensor, const JsonValue& value,
                                    std::string_view name) const {
  const JsonValue* found = value.find(name);
  if (found == nullptr) fail_tensor(tensor, "it has no ", name);
  return *found;
}

SafetensorsType IndexReader::read_type(const std::string& tensor, const JsonValue& value) const {
  if (!value.is_string()) fail_tensor(tensor, "dtype is not a string");
  const std::string& name = value.as_string();
  const auto* row = std::find_if(type_table.begin(), type_table.end(),
                                 [&](const TypeRow& candidate) { return candidate.name == name; });
  if (row == type_table.end()) fail_tensor(tensor, "unknown dtype '", safetensors::printable(name), "'");
  return static_cast<SafetensorsType>(row - type_table.begin());
}

std::vector<std::int64_t> IndexReader::read_shape(const std::string& tensor, const JsonValue& value) const {
  if (!value.is_array()) fail_tensor(tensor, "shape is not an array");
  std::vector<std::int64_t> shape;
  for (const JsonValue& extent : value.as_array()) {
    if (extent.kind() != JsonKind::integer || extent.as_int64() < 0) {
      fail_tensor(tensor, "shape holds something else than integers from 0 to 2^63-1");
    }
    shape.push_back(extent.as_int64());
  }
  return shape;
}

void IndexReader::read_offsets(SafetensorsEntry& entry, const JsonValue& value) const {
  if (!value.is_array() || value.as_array().size() != 2) {
    fail_tensor(entry.name, "data_offsets is not an array of two numbers");
  }
  const JsonArray& pair = value.as_array();
  for (const JsonValue& offset : pair) {
    if (offset.kind() != JsonKind::integer || offset.as_int64() < 0) {
      fail_tensor(entry.name, "data_offsets holds something else than integers from 0 to 2^63-1");
    }
  }
  entry.begin = pair[0].as_uint64();
  entry.end = pair[1].as_uint64();
  if (entry.end < entry.begin) {
    fail_tensor(entry.name, "data_offsets [", entry.begin, ", ", entry.end, ") end before they begin");
  }
}

void IndexReader::check_size(const SafetensorsEntry& entry) const {
  const std::optional<std::uint64_t> bits = safetensors::bits_of_tensor(entry.shape, bits_of(entry.type));
  const std::string what = detail::concat("shape ", shape_text(entry.shape), " of ", name_of(entry.type));
  if (!bits) fail_tensor(entry.name, what, " has more than 2^64 bits");
  if (*bits % 8 != 0) fail_tensor(entry.name, what, " does not fill whole bytes");
  if (*bits / 8 != entry.end - entry.begin) {
    fail_tensor(entry.name, what, " needs ", *bits / 8, " bytes, but data_offsets [", entry.begin, ", ",
                entry.end, ") hold ", entry.end - entry.begin);
  }
}

// Sorts by offset, checks that the tensors fill the data without holes or overlap, and makes the offsets
// count from the start of the file.
void IndexReader::place(std::vector<SafetensorsEntry>& entries) const {
  std::sort(entries.begin(), entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  const std::uint64_t available = file_.size() - data_begin_;
  std::uint64_t filled = 0;
  for (SafetensorsEntry& entry : entries) {
    if (entry.begin != filled) {
      fail_tensor(entry.name, "data_offsets [", entry.begin, ", ", entry.end, ") should begin at ", filled,
                  ", where the tensor before ends (", entry.begin < filled ? "overlap" : "hole", ")");
    }
    filled = entry.end;
    if (filled > available) {
      fail_tensor(entry.name, "data_offsets [", entry.begin, ", ", entry.end, ") go beyond the ", available,
                  " bytes of data in the file");
    }
    entry.begin += data_begin_;
    entry.end += data_begin_;
  }
  if (filled != available) fail("the tensors fill ", filled, " of ", available, " bytes of data");
}

}  // namespace

std::string_view name_of(SafetensorsType type) { return type_table[static_cast<std::size_t>(type)].name; }

int bits_of(SafetensorsType type) { return type_table[static_cast<std::size_t>(type)].bits; }

SafetensorsType to_safetensors_type(DType type) {
  switch (type) {
    case DType::f64: return SafetensorsType::f64;
    case DType::f32: return SafetensorsType::f32;
    case DType::bf16: return SafetensorsType::bf16;
    case DType::i32: return SafetensorsType::i32;
    case DType::i64: return SafetensorsType::i64;
    case DType::u8: return SafetensorsType::u8;
    case DType::u16: return SafetensorsType::u16;
    case DType::f16: return SafetensorsType::f16;
  }
  throw_error(ErrorCode::internal, "safetensors: element type ", static_cast<int>(type), " is unknown");
}

std::optional<DType> to_dtype(SafetensorsType type) {
  for (const DType candidate :
       {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i32, DType::i64, DType::u8, DType::u16}) {
    if (to_safetensors_type(candidate) == type) return candidate;
  }
  return std::nullopt;
}

SafetensorsIndex::SafetensorsIndex(std::vector<SafetensorsEntry> entries, SafetensorsMetadata metadata)
    : entries_(std::move(entries)), by_name_(entries_.size()), metadata_(std::move(metadata)) {
  std::iota(by_name_.begin(), by_name_.end(), std::uint32_t{0});
  std::sort(by_name_.begin(), by_name_.end(),
            [&](std::uint32_t a, std::uint32_t b) { return entries_[a].name < entries_[b].name; });
}

const SafetensorsEntry* SafetensorsIndex::find(std::string_view name) const {
  const auto before = [&](std::uint32_t i, std::string_view key) { return entries_[i].name < key; };
  const auto found = std::lower_bound(by_name_.begin(), by_name_.end(), name, before);
  return found != by_name_.end() && entries_[*found].name == name ? &entries_[*found] : nullptr;
}

SafetensorsIndex read_safetensors_index(std::span<const std::byte> file, std::string_view source) {
  return IndexReader(file, source).read();
}

}  // namespace prun
