// Maps a safetensors file into memory and checks its bytes.
#include "base/safetensors.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/crc32c.hpp"
#include "base/json.hpp"
#include "base/slice.hpp"

namespace prun::safetensors {
namespace {

// ------------------------------------------------------------------- safetensors format
// The safetensors format, rule by rule:
//  1. 8 bytes: length N of the header, little-endian; N <= 100,000,000 and 8 + N <= size of the file.
//  2. N bytes: a JSON object in UTF-8 that starts with '{', padded with spaces at the end.
//  3. Each member but `__metadata__` is a tensor: dtype, shape, data_offsets [begin, end). Fields beyond
//     those are ignored. `__metadata__` maps strings to strings.
//  4. In order of offsets, the first tensor begins at 0 and each one where the last ended.
//  5. end - begin is the product of the shape times the size of the type, in whole bytes.
//  6. The last tensor ends at the end of the file.
//  7. The type is one of the table below.
//  8. `__metadata__` holds a `format` (for the writer: some loaders refuse files without).
//  9. No name occurs twice in an object.

inline constexpr std::uint64_t max_header_bytes = 100'000'000;
inline constexpr std::uint64_t length_bytes = 8;
inline constexpr std::string_view metadata_name = "__metadata__";
inline constexpr auto chunk_bytes = static_cast<std::uint64_t>(checksum_chunk_bytes);
inline constexpr std::size_t checksum_digits = 8;
inline constexpr std::string_view data_key = "prun.crc32c.data", header_key = "prun.crc32c.header";

inline std::uint64_t chunks_of(std::uint64_t bytes) { return (bytes + chunk_bytes - 1) / chunk_bytes; }

// Returns where the digits begin that a header has under a key. Within other texts of a header, quotes have a
// backslash before them.
inline std::size_t place_of(std::string_view header, std::string_view key) {
  const std::string start = detail::concat('"', key, "\":\"");
  const std::size_t found = header.find(start);
  return found == std::string_view::npos ? found : found + start.size();
}

// Makes a name printable: names come from the file and may be long or hold control characters.
inline std::string printable(std::string_view text) {
  constexpr std::size_t longest = 100;
  std::string out(text.substr(0, longest));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text.size() > longest ? out + "..." : out;
}

// Returns the bits of a tensor, or nothing when the number does not fit. As in the reference, the product
// overflows in the order of the extents, even if a zero comes later.
inline std::optional<std::uint64_t> bits_of_tensor(const std::vector<std::int64_t>& shape, int bits) {
  std::uint64_t product = 1;
  for (const std::int64_t extent : shape) {
    if (__builtin_mul_overflow(product, static_cast<std::uint64_t>(extent), &product)) return std::nullopt;
  }
  if (__builtin_mul_overflow(product, static_cast<std::uint64_t>(bits), &product)) return std::nullopt;
  return product;
}

}  // namespace
}  // namespace prun::safetensors

namespace prun {

// ------------------------------------------------------------------- safetensors

void SafetensorsFile::Unmap::operator()(const std::byte* data) const {
  ::munmap(const_cast<std::byte*>(data), size);
}

SafetensorsFile::Map SafetensorsFile::map_file(const std::filesystem::path& path) {
  // A pipe without a writer must not block us; a socket cannot even be opened.
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!fd.is_open() && errno != ENXIO) throw_storage_error("open", path, errno);
  struct stat status = {};
  if (fd.is_open() && ::fstat(fd.get(), &status) != 0) throw_storage_error("look at", path, errno);
  if (!S_ISREG(status.st_mode)) throw_error(ErrorCode::bad_input, path.string(), ": it is not a file");
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return Map(nullptr, Unmap{0});
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) throw_storage_error("map", path, errno);
  return Map(static_cast<const std::byte*>(data), Unmap{size});
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : path_(path),
      map_(map_file(path)),
      index_(read_safetensors_index(file(), path.string())),
      checksums_(check_header()) {
  std::size_t chunks = 0;
  for (const SafetensorsEntry& entry : entries()) {
    first_chunk_.push_back(chunks);
    chunks += safetensors::chunks_of(entry.end - entry.begin);
  }
  if (has_checksums() &&
      index_.metadata().find(safetensors::data_key)->second.size() != chunks * safetensors::checksum_digits)
    throw_error(ErrorCode::bad_input, path.string(), " has checksums of other data than it holds");
}

// Returns the header's checksum as it should be and is; empty if the file has none.
std::string SafetensorsFile::check_header() const {
  const auto& metadata = index_.metadata();
  const auto written = metadata.find(safetensors::header_key);
  if (written == metadata.end() && !metadata.contains(safetensors::data_key)) return {};
  const std::uint64_t data_begin = entries().empty() ? file().size() : entries().front().begin;
  std::string header(reinterpret_cast<const char*>(file().data()), data_begin);
  const std::size_t place = safetensors::place_of(header, safetensors::header_key);
  std::string counted;
  if (place <= header.size() - safetensors::checksum_digits) {
    header.replace(place, safetensors::checksum_digits, safetensors::checksum_digits, '0');
    counted = crc32c_text(crc32c(std::as_bytes(std::span(header))));
  }
  if (written == metadata.end() || !metadata.contains(safetensors::data_key) || written->second != counted)
    throw_error(ErrorCode::bad_input, path_.string(),
                ": the header does not have the checksum it was written with; the file is damaged");
  return counted;
}

void SafetensorsFile::check(const SafetensorsEntry& entry, std::uint64_t first_byte,
                            std::uint64_t end_byte) const {
  PRUN_CHECK(has_checksums(), path_.string(), " has no checksums");
  const std::string& sums = index_.metadata().find(safetensors::data_key)->second;
  const std::size_t first = first_chunk_[static_cast<std::size_t>(&entry - entries().data())];
  const std::uint64_t chunks = safetensors::chunks_of(std::min(end_byte, entry.end - entry.begin));
  for (std::uint64_t chunk = first_byte / safetensors::chunk_bytes; chunk < chunks; ++chunk) {
    const std::uint64_t begin = entry.begin + chunk * safetensors::chunk_bytes;
    const std::uint64_t end = std::min(begin + safetensors::chunk_bytes, entry.end);
    const std::string counted = crc32c_text(crc32c(file().subspan(begin, end - begin)));
    if (sums.compare((first + chunk) * safetensors::checksum_digits, safetensors::checksum_digits, counted) !=
        0)
      throw_error(ErrorCode::bad_input, path_.string(), ": tensor '", safetensors::printable(entry.name),
                  "': bytes ", begin, " to ", end - 1,
                  " of the file are not those that were written; it is damaged");
  }
}

const SafetensorsEntry& SafetensorsFile::entry(std::string_view name) const {
  const SafetensorsEntry* found = index_.find(name);
  if (found == nullptr) {
    throw_error(ErrorCode::not_found, path_.string(), ": there is no tensor '", safetensors::printable(name),
                "' among its ", entries().size());
  }
  return *found;
}

std::span<const std::byte> SafetensorsFile::bytes(const SafetensorsEntry& entry) const {
  PRUN_CHECK(entry.begin <= entry.end && entry.end <= file().size(), "entry of another file");
  return file().subspan(entry.begin, entry.end - entry.begin);
}

// Releases whole chunks, as check() has read them.
void SafetensorsFile::let_go(const SafetensorsEntry& entry, std::uint64_t first, std::uint64_t end) const {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t begin =
      (entry.begin + first / safetensors::chunk_bytes * safetensors::chunk_bytes) / page * page;
  const std::uint64_t last =
      std::min(entry.begin + safetensors::chunks_of(end) * safetensors::chunk_bytes, entry.end);
  if (begin < last) ::madvise(const_cast<std::byte*>(map_.get()) + begin, last - begin, MADV_DONTNEED);
}

namespace {

// ------------------------------------------------------------------- safetensors index
// Reads the header of a safetensors file and checks every rule of the format.

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

namespace {

// ------------------------------------------------------------------- safetensors writer

std::uint64_t bytes_of_spec(const SafetensorsSpec& spec) {
  const bool negative =
      std::any_of(spec.shape.begin(), spec.shape.end(), [](std::int64_t e) { return e < 0; });
  const auto bits = negative
                        ? std::nullopt
                        : safetensors::bits_of_tensor(spec.shape, bits_of(to_safetensors_type(spec.type)));
  if (!bits) {
    throw_error(ErrorCode::bad_input, "tensor '", safetensors::printable(spec.name), "': shape ",
                shape_text(spec.shape), " is negative or too large for a safetensors file");
  }
  return *bits / 8;
}

std::vector<SafetensorsSpec> checked_order(std::vector<SafetensorsSpec> specs) {
  std::sort(specs.begin(), specs.end(), [](const SafetensorsSpec& a, const SafetensorsSpec& b) {
    const auto type_a = to_safetensors_type(a.type), type_b = to_safetensors_type(b.type);
    return type_a != type_b ? type_a > type_b : a.name < b.name;
  });
  std::set<std::string_view> names = {safetensors::metadata_name};
  for (const SafetensorsSpec& spec : specs) {
    if (!names.insert(spec.name).second) {
      throw_error(ErrorCode::bad_input, "tensor name '", safetensors::printable(spec.name),
                  "' is reserved or given twice; a safetensors file needs distinct names");
    }
  }
  return specs;
}

std::vector<std::uint64_t> sizes_of(const std::vector<SafetensorsSpec>& specs) {
  std::vector<std::uint64_t> sizes;
  sizes.reserve(specs.size());
  for (const SafetensorsSpec& spec : specs) sizes.push_back(bytes_of_spec(spec));
  return sizes;
}

void add_metadata(JsonWriter& json, const SafetensorsMetadata& metadata) {
  json.name(safetensors::metadata_name).begin_object().member("format", "pt");
  for (const auto& [key, text] : metadata) json.member(key, text);
  json.end_object();
}

// Returns the caller's metadata, with room for checksums.
SafetensorsMetadata with_room(SafetensorsMetadata metadata, const std::vector<std::uint64_t>& sizes,
                              Checksums checksums) {
  for (const std::string_view key :
       {std::string_view("format"), safetensors::data_key, safetensors::header_key})
    if (metadata.contains(key))
      throw_error(ErrorCode::bad_input, "safetensors metadata '", key, "' is set by prun; leave it out");
  if (checksums == Checksums::absent) return metadata;
  std::uint64_t chunks = 0;
  for (const std::uint64_t size : sizes) chunks += safetensors::chunks_of(size);
  metadata.emplace(safetensors::data_key, std::string(chunks * safetensors::checksum_digits, '0'));
  metadata.emplace(safetensors::header_key, std::string(safetensors::checksum_digits, '0'));
  return metadata;
}

// Returns eight bytes of length and the header itself, padded so that the data starts at a multiple of eight.
std::string header_text(const std::vector<SafetensorsSpec>& specs, const std::vector<std::uint64_t>& sizes,
                        const SafetensorsMetadata& metadata) {
  JsonWriter json;
  json.begin_object();
  add_metadata(json, metadata);
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    json.name(specs[i].name).begin_object();
    json.member("dtype", name_of(to_safetensors_type(specs[i].type)));
    json.name("shape").begin_array();
    for (const std::int64_t extent : specs[i].shape) json.value(extent);
    json.end_array().name("data_offsets").begin_array().value(offset);
    if (__builtin_add_overflow(offset, sizes[i], &offset)) {
      throw_error(ErrorCode::bad_input, "the tensors are too large for one safetensors file");
    }
    json.value(offset).end_array().end_object();
  }
  std::string text = json.end_object().take();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > safetensors::max_header_bytes) {
    throw_error(ErrorCode::bad_input, "the safetensors header would have ", text.size(),
                " bytes, above the limit of ", safetensors::max_header_bytes,
                "; split the tensors into several files");
  }
  std::string length;
  for (int shift = 0; shift < 64; shift += 8) length += static_cast<char>(text.size() >> shift & 0xff);
  return length + text;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, std::vector<SafetensorsSpec> specs,
                                     SafetensorsMetadata metadata, Checksums checksums)
    : order_(checked_order(std::move(specs))),
      sizes_(sizes_of(order_)),
      checksums_(checksums),
      header_(header_text(order_, sizes_, with_room(std::move(metadata), sizes_, checksums))),
      file_(path) {
  file_.write(header_);
  std::uint64_t begin = header_.size();
  for (const std::uint64_t size : sizes_) {
    first_chunk_.push_back(missing_);
    begins_.push_back(begin);
    missing_ += safetensors::chunks_of(size);
    begin += size;
  }
  sums_.assign(missing_ * safetensors::checksum_digits, ' ');
  skip_full_tensors();
}

void SafetensorsWriter::skip_full_tensors() {
  while (current_ < order_.size() && written_ == sizes_[current_]) {
    ++current_;
    written_ = 0;
  }
}

void SafetensorsWriter::write(std::string_view name, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  PRUN_CHECK(current_ < order_.size(), file_.target().string(), " is full, but '", name, "' has more bytes");
  PRUN_CHECK(order_[current_].name == name, file_.target().string(), " waits for '", order_[current_].name,
             "', not '", name, "'");
  PRUN_CHECK(bytes.size() <= sizes_[current_] - written_, "tensor '", name, "' has ", sizes_[current_],
             " bytes, ", bytes.size(), " after ", written_, " are too many");
  file_.write(bytes);
  if (checksums_ == Checksums::written) add_to_checksum(bytes);
  written_ += bytes.size();
  skip_full_tensors();
}

// Adds bytes of the current tensor, before written_ grows.
void SafetensorsWriter::add_to_checksum(std::span<const std::byte> bytes) {
  for (std::uint64_t at = written_; !bytes.empty();) {
    const std::uint64_t end =
        std::min((at / safetensors::chunk_bytes + 1) * safetensors::chunk_bytes, sizes_[current_]);
    const auto piece = bytes.first(std::min<std::size_t>(bytes.size(), end - at));
    sum_ = crc32c(piece, sum_);
    at += piece.size();
    bytes = bytes.subspan(piece.size());
    if (at == end)
      note_checksum(first_chunk_[current_] + (at - 1) / safetensors::chunk_bytes, std::exchange(sum_, 0));
  }
}

void SafetensorsWriter::note_checksum(std::uint64_t chunk, std::uint32_t sum) {
  const std::uint64_t at = chunk * safetensors::checksum_digits;
  PRUN_CHECK(sums_[at] == ' ', file_.target().string(), ": chunk ", chunk, " is written twice");
  sums_.replace(at, safetensors::checksum_digits, crc32c_text(sum));
  --missing_;
}

void SafetensorsWriter::write_chunk(std::size_t number, std::uint64_t chunk,
                                    std::span<const std::byte> bytes) {
  const std::uint64_t size = sizes_.at(number), at = chunk * safetensors::chunk_bytes;
  PRUN_CHECK(at < size && bytes.size() == std::min(size - at, safetensors::chunk_bytes), "tensor '",
             order_[number].name, "' has ", size, " bytes, and no chunk ", chunk, " of ", bytes.size());
  file_.write_at(begins_[number] + at, bytes);
  note_checksum(first_chunk_[number] + chunk,
                checksums_ == Checksums::written ? crc32c(bytes) : std::uint32_t{0});
}

void SafetensorsWriter::finish() {
  PRUN_CHECK(current_ == order_.size() || missing_ == 0, file_.target().string(), " still waits for '",
             current_ < order_.size() ? order_[current_].name : "", "'");
  if (checksums_ == Checksums::written) {
    header_.replace(safetensors::place_of(header_, safetensors::data_key), sums_.size(), sums_);
    const std::uint32_t sum = crc32c(std::as_bytes(std::span(header_)));
    header_.replace(safetensors::place_of(header_, safetensors::header_key), safetensors::checksum_digits,
                    crc32c_text(sum));
    file_.write_at(0, header_);
  }
  file_.commit();
}

}  // namespace prun
