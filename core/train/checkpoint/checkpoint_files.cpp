#include "train/checkpoint/checkpoint_files.hpp"

#include <algorithm>
#include <cstring>

#include "base/json.hpp"
#include "base/text.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;
constexpr const char* slices_key = "prun.slices";

// ------------------------------------------------------------------- what a file says of its slices

void add_extents(JsonWriter& json, const char* name, const Extents& extents) {
  json.name(name).begin_array();
  for (const std::int64_t extent : extents) json.value(extent);
  json.end_array();
}

// Returns each slice's name in its file: the tensor's own, and with a number where the file has another slice
// of it.
std::vector<std::string> entry_names(const std::vector<TensorSlice>& slices) {
  std::map<std::string_view, int> seen;
  std::vector<std::string> names;
  for (const TensorSlice& of : slices) {
    const int number = ++seen[of.tensor];
    names.push_back(number == 1 ? of.tensor : of.tensor + "@" + std::to_string(number));
  }
  return names;
}

std::string slices_text(const std::vector<TensorSlice>& slices, const std::vector<std::string>& names) {
  JsonWriter json;
  json.begin_object();
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const TensorSlice& of = slices[i];
    if (of.slice.is_whole()) continue;
    json.name(names[i]).begin_object();
    if (names[i] != of.tensor) json.member("tensor", of.tensor);
    add_extents(json, "whole", of.slice.whole);
    add_extents(json, "start", of.slice.start);
    if (!of.slice.is_box()) {
      add_extents(json, "extent", of.slice.extent);
      json.member("first", of.slice.first);
    }
    json.end_object();
  }
  return json.end_object().take();
}

Extents extents_of(const JsonValue& json) {
  Extents extents;
  for (const JsonValue& extent : json.as_array()) extents.push_back(extent.as_int64());
  return extents;
}

std::string tensor_of(const SafetensorsEntry& entry, const JsonValue& described) {
  const JsonValue* const found = described.find(entry.name);
  const JsonValue* const tensor = found ? found->find("tensor") : nullptr;
  return tensor ? tensor->as_string() : entry.name;
}

// Says whether a slice is within the whole, whose number of elements fits.
bool is_possible(const Slice& slice) {
  std::int64_t elements = 1;
  if (slice.start.size() != slice.whole.size() || slice.extent.size() != slice.whole.size()) return false;
  for (std::size_t d = 0; d < slice.whole.size(); ++d)
    if (slice.start[d] < 0 || slice.extent[d] < 0 || slice.whole[d] < slice.extent[d] ||
        slice.start[d] > slice.whole[d] - slice.extent[d] ||
        __builtin_mul_overflow(elements, slice.whole[d], &elements))
      return false;
  const std::int64_t box = elements_of(slice.extent);
  return slice.first >= 0 && slice.count >= 0 && slice.count <= box && slice.first <= box - slice.count;
}

Slice slice_of(const SafetensorsFile& file, const SafetensorsEntry& entry, const JsonValue& described) {
  Slice slice = whole_slice(entry.shape);
  if (const JsonValue* const found = described.find(entry.name)) {
    slice.whole = extents_of(found->at("whole"));
    slice.start = extents_of(found->at("start"));
    if (const JsonValue* const first = found->find("first")) {
      slice.extent = extents_of(found->at("extent"));
      slice.first = first->as_int64();
    }
  }
  if (!is_possible(slice))
    throw_error(ErrorCode::bad_input, file.path().string(), ": tensor ", in_quotes(entry.name),
                " is no possible part of the whole that it names; this is no file of a checkpoint");
  return slice;
}

SafetensorsFile open_file(const fs::path& path, const Manifest::File& record) {
  std::error_code ignored;
  if (!fs::exists(path, ignored))
    throw_error(ErrorCode::not_found, path.string(), " is not there: the checkpoint is not whole");
  SafetensorsFile file(path);
  if (!file.has_checksums() || file.header_checksum() != record.checksum)
    throw_error(ErrorCode::bad_input, path.string(),
                " is not the file that the manifest names; bring the files of the checkpoint back to where "
                "they were");
  return file;
}

// ------------------------------------------------------------------- reading a slice

// Names elements that one piece has and a slice wants.
struct Copy {
  std::int64_t to = 0, from = 0, count = 0;
  std::size_t piece = 0;
};

// Adds the common elements; both lists are in the order of the whole.
void add_common(const std::vector<Stretch>& wanted, const std::vector<Stretch>& had, std::size_t piece,
                std::vector<Copy>& copies) {
  for (std::size_t w = 0, h = 0; w < wanted.size() && h < had.size();) {
    const std::int64_t begin = std::max(wanted[w].whole, had[h].whole);
    const std::int64_t wanted_end = wanted[w].whole + wanted[w].count, had_end = had[h].whole + had[h].count;
    const std::int64_t end = std::min(wanted_end, had_end);
    if (begin < end)
      copies.push_back(
          {wanted[w].part + begin - wanted[w].whole, had[h].part + begin - had[h].whole, end - begin, piece});
    (wanted_end < had_end ? w : h) += 1;
  }
}

std::vector<Copy> copies_of(const CheckpointFiles::Tensor& tensor, const Slice& wanted) {
  const std::vector<Stretch> runs = stretches(wanted);
  std::vector<Copy> copies;
  for (std::size_t i = 0; i < tensor.pieces.size(); ++i)
    add_common(runs, stretches(tensor.pieces[i].slice), i, copies);
  std::sort(copies.begin(), copies.end(), [](const Copy& a, const Copy& b) { return a.to < b.to; });
  return copies;
}

// Says whether the copies give each element once.
bool covers(const std::vector<Copy>& copies, std::int64_t count) {
  std::int64_t end = 0;
  for (const Copy& copy : copies) {
    if (copy.to != end) return false;
    end += copy.count;
  }
  return end == count;
}

// Holds the bytes of a piece between which copies lie; with none, both are 0.
struct Span {
  std::uint64_t first = 0, end = 0;
};

Span span_in(std::size_t piece, const std::vector<Copy>& copies, std::int64_t size) {
  std::int64_t first = INT64_MAX, end = 0;
  for (const Copy& copy : copies) {
    if (copy.piece != piece) continue;
    first = std::min(first, copy.from * size);
    end = std::max(end, (copy.from + copy.count) * size);
  }
  if (first >= end) return {};
  return {static_cast<std::uint64_t>(first), static_cast<std::uint64_t>(end)};
}

}  // namespace

namespace {

std::vector<SafetensorsSpec> specs_of(const std::vector<TensorSlice>& slices,
                                      const std::vector<std::string>& names) {
  std::vector<SafetensorsSpec> specs;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const Slice& slice = slices[i].slice;
    specs.push_back({names[i], slices[i].type, slice.is_box() ? slice.extent : Extents{slice.count}});
  }
  return specs;
}

}  // namespace

SlicesWriter::SlicesWriter(const fs::path& file, const std::vector<TensorSlice>& slices)
    : SlicesWriter(file, slices, entry_names(slices)) {}

SlicesWriter::SlicesWriter(const fs::path& file, const std::vector<TensorSlice>& slices,
                           const std::vector<std::string>& names)
    : writer_(file, specs_of(slices, names), {{slices_key, slices_text(slices, names)}}, Checksums::written),
      places_(slices.size()) {
  std::map<std::string_view, std::size_t> by_name;
  for (std::size_t i = 0; i < writer_.order().size(); ++i) by_name.emplace(writer_.order()[i].name, i);
  for (std::size_t i = 0; i < slices.size(); ++i) places_[i] = by_name.at(names[i]);
}

void SlicesWriter::write_all(const BytesOfSlice& bytes) {
  std::vector<std::size_t> slices(places_.size());
  for (std::size_t i = 0; i < places_.size(); ++i) slices[places_[i]] = i;
  for (std::size_t place = 0; place < slices.size(); ++place)
    bytes(slices[place],
          [&](std::span<const std::byte> piece) { writer_.write(writer_.order()[place].name, piece); });
}

void write_slices(const fs::path& file, const std::vector<TensorSlice>& slices, const BytesOfSlice& bytes) {
  SlicesWriter writer(file, slices);
  writer.write_all(bytes);
  writer.finish();
}

Manifest::File file_record(const fs::path& file) {
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(file, error);
  if (error) throw_storage_error("look at", file, error.value());
  return {bytes, SafetensorsFile(file).header_checksum()};
}

void check_has(const CheckpointFiles& files, const std::string& state) {
  const auto is_asked_for = [&](const auto& tensor) { return tensor.first.ends_with("." + state); };
  if (!state.empty() && std::none_of(files.tensors().begin(), files.tensors().end(), is_asked_for))
    throw_error(ErrorCode::bad_input, "cannot use state '", state, "' in place of the weights of ",
                files.folder().string(),
                ": the run kept none; use the weights, or train with a strategy that keeps it");
}

std::string weights_of(const CheckpointFiles& files, const std::string& parameter, const std::string& state) {
  if (!state.empty() && files.tensors().contains(parameter + "." + state)) return parameter + "." + state;
  const std::string master = parameter + ".master";
  return files.tensors().contains(master) ? master : parameter;
}

CheckpointFiles::CheckpointFiles(fs::path folder)
    : folder_(std::move(folder)), manifest_(read_manifest(folder_)) {
  files_.reserve(manifest_.files.size());  // pieces point into this vector
  for (const Manifest::File& record : manifest_.files) {
    files_.push_back(open_file(folder_ / rank_file_name(files_.size()), record));
    add(files_.back());
  }
  for (const auto& [name, tensor] : tensors_) check_whole(name, tensor);
}

void CheckpointFiles::add(const SafetensorsFile& file) {
  const auto text = file.index().metadata().find(slices_key);
  if (text == file.index().metadata().end())
    throw_error(ErrorCode::bad_input, file.path().string(), ": metadata '", slices_key,
                "' is missing; this is no file of a checkpoint");
  const JsonValue described = parse_json(text->second, file.path().string() + ", " + slices_key);
  for (const SafetensorsEntry& entry : file.entries()) {
    Slice slice = slice_of(file, entry, described);
    const std::optional<DType> type = to_dtype(entry.type);
    Tensor& tensor = tensors_[tensor_of(entry, described)];
    if (tensor.pieces.empty() && type) {
      tensor.type = *type;
      tensor.shape = slice.whole;
    }
    if (type != tensor.type || slice.whole != tensor.shape)
      throw_error(
          ErrorCode::bad_input, file.path().string(), ": tensor ", in_quotes(entry.name), " is ",
          name_of(entry.type), shape_text(slice.whole),
          ", which another file of the checkpoint has otherwise, or which prun does not compute with");
    tensor.pieces.push_back({&file, &entry, std::move(slice)});
  }
}

// Checks a tensor; which elements its pieces have is checked when they are read.
void CheckpointFiles::check_whole(const std::string& name, const Tensor& tensor) const {
  std::int64_t count = 0;
  for (const Piece& piece : tensor.pieces) count += piece.slice.count;
  if (count != elements_of(tensor.shape))
    throw_error(ErrorCode::bad_input, folder_.string(), ": of tensor ", in_quotes(name),
                shape_text(tensor.shape), " the files have ", count,
                " elements; the checkpoint is not whole");
}

const CheckpointFiles::Tensor& CheckpointFiles::tensor(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end())
    throw_error(ErrorCode::bad_input, folder_.string(), " has no tensor ", in_quotes(name));
  return found->second;
}

void CheckpointFiles::read(const TensorSlice& wanted, std::span<std::byte> to) const {
  const Tensor& from = tensor(wanted.tensor);
  const std::vector<Copy> copies = copies_of(from, wanted.slice);
  if (!covers(copies, wanted.slice.count))
    throw_error(ErrorCode::bad_input, folder_.string(), ": of tensor ", in_quotes(wanted.tensor),
                " some elements are in no file, or in two; the checkpoint is not whole");
  const std::int64_t size = size_of(from.type);
  std::vector<Span> spans;
  for (std::size_t i = 0; i < from.pieces.size(); ++i) {
    const Span span = spans.emplace_back(span_in(i, copies, size));
    if (span.end > 0) from.pieces[i].file->check(*from.pieces[i].entry, span.first, span.end);
  }
  for (const Copy& copy : copies) {
    const Piece& piece = from.pieces[copy.piece];
    const std::span<const std::byte> bytes = piece.file->bytes(*piece.entry);
    std::memcpy(to.data() + copy.to * size, bytes.data() + copy.from * size,
                static_cast<std::size_t>(copy.count * size));
  }
  for (std::size_t i = 0; i < spans.size(); ++i)
    from.pieces[i].file->let_go(*from.pieces[i].entry, spans[i].first, spans[i].end);
}

}  // namespace prun
