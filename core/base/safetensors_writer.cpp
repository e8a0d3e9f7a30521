#include <algorithm>
#include <set>
#include <utility>

#include "base/crc32c.hpp"
#include "base/json.hpp"
#include "base/safetensors.hpp"
#include "base/safetensors_format.hpp"
#include "base/slice.hpp"

namespace prun {

namespace {

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
