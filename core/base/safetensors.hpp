// Safetensors files: a checked reader over a memory map, and a writer that streams.
//
// The reader enforces every rule of the format (safetensors.cpp) before it hands out a single span,
// and is stricter than the reference reader in four points: the header starts with '{' at once and is padded
// with spaces only; a name occurs once at each level; `__metadata__` is an object if it is there; extents
// fit in 63 bits.
//
// The format carries no checksums; a file may have its own, in its metadata, which other readers ignore:
//   prun.crc32c.data    eight digits for every 4 MiB of every tensor, in the order of the data
//   prun.crc32c.header  of the length and the header, with zeros in the place of these eight digits
// Together they cover every byte of the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/durable_file.hpp"
#include "prun/types.hpp"

namespace prun {

// Lists all types of the format, in ascending order of the reference writer, which lays out the last ones
// first.
enum class SafetensorsType : std::uint8_t {
  boolean,
  f4,
  f6_e2m3,
  f6_e3m2,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  f8_e8m0,
  f8_e4m3fnuz,
  f8_e5m2fnuz,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  c64,
  f64,
  i64,
  u64
};

std::string_view name_of(SafetensorsType type);  // name in the file: "F32"
int bits_of(SafetensorsType type);
SafetensorsType to_safetensors_type(DType type);
// Returns a type, or nothing for those that prun does not compute with.
std::optional<DType> to_dtype(SafetensorsType type);

// Describes one tensor of a file. Bytes [begin, end) count from the start of the file.
struct SafetensorsEntry {
  std::string name;
  SafetensorsType type = SafetensorsType::f32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

using SafetensorsMetadata = std::map<std::string, std::string, std::less<>>;

// Holds what the header says, all of it verified against the size of the file.
class SafetensorsIndex {
 public:
  SafetensorsIndex(std::vector<SafetensorsEntry> entries, SafetensorsMetadata metadata);

  // Returns the entries in the order of the data.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  const SafetensorsMetadata& metadata() const { return metadata_; }
  // Returns an entry, or nullptr if there is no such tensor.
  const SafetensorsEntry* find(std::string_view name) const;

 private:
  std::vector<SafetensorsEntry> entries_;
  std::vector<std::uint32_t> by_name_;  // positions in entries_, sorted by name
  SafetensorsMetadata metadata_;
};

// Reads and checks the header of a file in memory. `source` names the file in errors (bad_input). Memory use
// is bounded by the length of the header that is really there.
SafetensorsIndex read_safetensors_index(std::span<const std::byte> file, std::string_view source);

// Opens a file for reading. Spans stay valid as long as this lives; the file must not shrink meanwhile.
class SafetensorsFile {
 public:
  // Throws storage if the file cannot be opened, bad_input if it breaks a rule.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const SafetensorsIndex& index() const { return index_; }
  const std::vector<SafetensorsEntry>& entries() const { return index_.entries(); }
  // Returns an entry; throws not_found, naming the file and the tensor.
  const SafetensorsEntry& entry(std::string_view name) const;
  // Says whether the file has checksums; the header's has been compared then.
  bool has_checksums() const { return !checksums_.empty(); }
  // Returns the checksum of the header, and so of all it states, the data's checksums included.
  const std::string& header_checksum() const { return checksums_; }
  // Compares the checksums of a tensor, or of the chunks that cover its bytes [first, end): throws bad_input
  // if they differ.
  void check(const SafetensorsEntry& entry, std::uint64_t first = 0, std::uint64_t end = UINT64_MAX) const;
  // Returns bytes that may start at any address: copy them before use as a wider type.
  std::span<const std::byte> bytes(const SafetensorsEntry& entry) const;
  std::span<const std::byte> bytes(std::string_view name) const { return bytes(entry(name)); }
  // Says that bytes [first, end) of a tensor need not stay in this process's memory; they can be read again.
  void let_go(const SafetensorsEntry& entry, std::uint64_t first, std::uint64_t end) const;

 private:
  struct Unmap {
    std::size_t size = 0;
    void operator()(const std::byte* data) const;
  };
  using Map = std::unique_ptr<const std::byte, Unmap>;
  static Map map_file(const std::filesystem::path& path);

  std::span<const std::byte> file() const { return {map_.get(), map_.get_deleter().size}; }
  std::string check_header() const;

  std::filesystem::path path_;
  Map map_;
  SafetensorsIndex index_;
  std::vector<std::size_t> first_chunk_;  // first chunk of each tensor, in the list of checksums
  std::string checksums_;                 // checksum of the header; empty: there is none
};

// Each chunk of so many bytes of a tensor, from its beginning on, has its own checksum.
inline constexpr std::int64_t checksum_chunk_bytes = std::int64_t{4} << 20;

struct SafetensorsSpec {
  std::string name;
  DType type = DType::f32;
  std::vector<std::int64_t> shape;
};

enum class Checksums { absent, written };

// Writes one file, which appears whole at finish() or not at all (see DurableFile). `__metadata__` always
// holds format = "pt", which other loaders ask for, next to the keys given.
//
//   SafetensorsWriter writer(path, specs);
//   for (const SafetensorsSpec& spec : writer.order()) writer.write(spec.name, bytes_of(spec));
//   writer.finish();
class SafetensorsWriter {
 public:
  // Throws bad_input for duplicate or reserved names, negative extents, sizes beyond 2^63, text that is not
  // UTF-8 and a header above the limit of the format.
  SafetensorsWriter(const std::filesystem::path& path, std::vector<SafetensorsSpec> specs,
                    SafetensorsMetadata metadata = {}, Checksums checksums = Checksums::absent);

  // Returns the order of the data, which is the reference writer's: by type (wider alignment first), then by
  // name.
  const std::vector<SafetensorsSpec>& order() const { return order_; }

  // Appends bytes to the tensor `name`: tensors come in order(), each in as many pieces as the caller
  // likes. Tensors without elements may be left out.
  void write(std::string_view name, std::span<const std::byte> bytes);

  // Writes, instead of write(), a whole chunk that has its own checksum, each once and in any order. `number`
  // is the tensor's in order(), `chunk` that of its bytes.
  void write_chunk(std::size_t number, std::uint64_t chunk, std::span<const std::byte> bytes);

  // Checks that every tensor is complete, adds the checksums and puts the file in place.
  void finish();

 private:
  void skip_full_tensors();
  void add_to_checksum(std::span<const std::byte> bytes);
  void note_checksum(std::uint64_t chunk, std::uint32_t sum);

  std::vector<SafetensorsSpec> order_;
  std::vector<std::uint64_t> sizes_;  // in bytes, ordered like order_
  Checksums checksums_;
  std::string header_;
  DurableFile file_;
  std::size_t current_ = 0;                          // number of the tensor being written
  std::uint64_t written_ = 0;                        // bytes of it that are written
  std::uint32_t sum_ = 0;                            // checksum of those since its last multiple of 4 MiB
  std::vector<std::uint64_t> first_chunk_, begins_;  // of each tensor, in the list of checksums; its bytes
  std::uint64_t missing_ = 0;                        // number of chunks that are not written yet
  std::string sums_;                                 // of all chunks; blank if not written yet
};

}  // namespace prun
